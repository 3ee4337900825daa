#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "error_matchers.hpp"
#include "harness/ranks.hpp"
#include "runtime/deadline.hpp"
#include "trace_intervals.hpp"
#include "weft/bucketer.hpp"
#include "weft/trace.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::string file_for(std::string const& name) {
  return (std::filesystem::temp_directory_path() / (name + '-' + std::to_string(getpid()) + ".json")).string();
}

nlohmann::json read(std::string const& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// "Computes" (sleeps) layer by layer and marks gradients ready, so that real collectives overlap it on an emulated
/// link. The last layer takes until those before it have arrived, so that these are hidden.
void run_step(Bucketer& bucketer, Stream stream, std::size_t tensors, std::vector<Interval>& compute) {
  for (std::size_t tensor = tensors; tensor-- > 0;) {
    auto const start = Clock::now();
    sleep_until(start + 2ms);
    if (tensor == 0) stream.synchronize();
    compute.push_back({start, Clock::now()});
    bucketer.mark_ready(tensor);
  }
  bucketer.finish();
}

TEST(TraceRanks, HiddenPercentIsRecomputedFromTheFile) {
  constexpr int kRanks = 2;
  constexpr std::size_t kTensors = 6;
  auto const path = file_for("weft-trace");
  std::vector<OverlapReport> reports(kRanks);
  CommunicatorOptions options;
  options.emulated_link = EmulatedLink{.latency = 20us, .bytes_per_second = 50e6};

  test::run_thread_ranks(
      kRanks,
      [&](Communicator& communicator) {
        // 64 KiB each: about 1.3 ms on this link.
        BucketerOptions bucketing;
        bucketing.limits = {.first_bytes = 1, .bytes = 1};  // every tensor is a bucket
        bucketing.rebuild = false;
        bucketing.stream = Stream::cpu();
        Bucketer bucketer(communicator, std::vector<TensorSpec>(kTensors, {16 << 10, DataType::f32}), bucketing);
        std::vector<Interval> compute;
        Interval step{Clock::now(), {}};
        run_step(bucketer, *bucketing.stream, kTensors, compute);
        step.end = Clock::now();

        Trace trace;
        for (auto const& interval : compute) trace.add(Trace::Lane::compute, "layer", interval);
        for (auto const& timing : bucketer.timings()) {
          trace.add(Trace::Lane::communication, "bucket", {timing.started, timing.finished}, timing.bytes);
        }
        reports[static_cast<std::size_t>(communicator.rank())] =
            OverlapReport::build(step, compute, bucketer.timings());
        trace.write(communicator, path);
      },
      options);

  auto const trace = read(path);
  std::filesystem::remove(path);
  for (int rank = 0; rank < kRanks; ++rank) {
    auto const& report = reports[static_cast<std::size_t>(rank)];
    EXPECT_EQ(test::intervals_in(trace, rank, "compute").size(), kTensors);
    EXPECT_EQ(test::intervals_in(trace, rank, "communication").size(), kTensors);
    EXPECT_GT(report.communication_ms, kTensors * 1.3);
    EXPECT_GT(report.hidden_ms, 0);
    EXPECT_LE(report.hidden_ms, report.hideable_ms + 1e-6);
    EXPECT_GT(report.exposed_ms, 0);  // the last bucket at least
    EXPECT_NEAR(test::hidden_percent_of(trace, rank), report.hidden_percent(), 1e-6);
  }
}

TEST(TraceRanks, RanksMayHaveDifferentNumbersOfIntervals) {
  constexpr int kRanks = 3;
  auto const path = file_for("weft-trace-uneven");
  test::run_thread_ranks(kRanks, [&](Communicator& communicator) {
    Trace trace;
    auto const now = Clock::now();
    for (int i = 0; i < communicator.rank() * 100; ++i) trace.add(Trace::Lane::compute, "step", {now, now + 1us});
    EXPECT_EQ(trace.empty(), communicator.rank() == 0);
    trace.write(communicator, path);
  });
  auto const trace = read(path);
  std::filesystem::remove(path);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(test::intervals_in(trace, rank, "compute").size(), static_cast<std::size_t>(rank * 100));
  }
}

TEST(TraceRanks, AFileThatCannotBeWrittenIsRankZerosError) {
  test::run_thread_ranks(2, [](Communicator& communicator) {
    Trace const trace;
    auto const write = [&] { trace.write(communicator, "/nonexistent/trace.json"); };
    if (communicator.rank() == 0) {
      test::expect_error(ErrorCode::system, {"/nonexistent/trace.json", "No such file"}, write);
    } else {
      write();
    }
    communicator.barrier();
  });
}

}  // namespace
}  // namespace weft
