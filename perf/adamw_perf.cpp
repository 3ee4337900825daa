// Compares the AdamW kernel's bandwidth with that of the same loads and stores without arithmetic, in interleaved
// rounds.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <latch>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/command_line.hpp"
#include "common/median.hpp"
#include "core/topology.hpp"
#include "kernels/cpu/optim/update.hpp"
#include "weft/buffer.hpp"

namespace {

using weft::perf::median;

using Seconds = std::chrono::duration<double>;

/// The f32 values that AdamW keeps for a parameter: the parameter itself, its gradient and two moments.
constexpr std::size_t kArrays = 4;
/// AdamW reads all of them and writes all but the gradient.
constexpr double kBytesPerParameter = 7 * sizeof(float);

struct Options {
  std::vector<std::size_t> counts{32'768, 1'000'000, 50'000'000};
  int threads = 1;
  int rounds = 9;
  double round_ms = 20;
  double min_ratio = 0.85;
  /// The number of parameters from which --min-ratio applies; absent: as soon as they do not fit a thread's L2. Within
  /// L2 the divider, not memory, is the limit, because results must be exact.
  std::optional<std::size_t> judge_from;
  std::string json;
};

/// What one thread updates. Filled by the thread that uses it, so that its pages are local to it.
struct Shard {
  weft::Buffer parameter, gradient, exp_avg, exp_avg_sq;

  explicit Shard(std::size_t count)
      : parameter(filled(count, 1.0F)),
        gradient(filled(count, 0.01F)),
        exp_avg(filled(count, 0.01F)),
        exp_avg_sq(filled(count, 0.0001F)) {}

  static weft::Buffer filled(std::size_t count, float value) {
    weft::Buffer buffer = weft::Buffer::host(count, weft::DataType::f32);
    std::ranges::fill(buffer.as<float>(), value);
    return buffer;
  }

  // Both kernels see typical values. traffic() moves the arrays around, so it has its own Shard.
  void adamw(weft::kernels::AdamScalars const& scalars) {
    weft::kernels::adam(arrays(), parameter.count(), scalars, false, {});
  }
  void traffic() { weft::kernels::adam_traffic(arrays(), parameter.count(), {}); }
  [[nodiscard]] weft::kernels::UpdateArrays arrays() const {
    weft::kernels::UpdateArrays arrays;
    arrays.parameter = parameter.data();
    arrays.gradient = gradient.data();
    arrays.state = {exp_avg.as<float>().data(), exp_avg_sq.as<float>().data(), nullptr};
    return arrays;
  }
};

/// Seconds per call of each kernel, one entry per round.
struct Timings {
  std::vector<double> adamw, traffic;
};

double seconds_per_call(int calls, std::function<void()> const& call) {
  auto const start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return Seconds(std::chrono::steady_clock::now() - start).count() / calls;
}

/// One thread's rounds: adamw and traffic in turn, the order swapped every round.
Timings measure_thread(std::size_t count, Options const& options, std::latch& start) {
  Shard shard(count);
  weft::kernels::AdamScalars const scalars =
      weft::kernels::adam_scalars(1e-4, 0.9, 0.999, 1e-8, 0.01, weft::kernels::Decay::decoupled, 1000);
  auto const adamw = [&] { shard.adamw(scalars); };
  auto const traffic = [&] { shard.traffic(); };
  double const once = std::max(seconds_per_call(2, adamw), 1e-7);
  int const calls = std::max(1, static_cast<int>(options.round_ms * 1e-3 / once));
  start.arrive_and_wait();
  Timings timings;
  for (int round = 0; round < options.rounds; ++round) {
    auto const fill = [&] {  // restores typical training values, because traffic() has permuted the arrays
      std::ranges::fill(shard.parameter.as<float>(), 1.0F);
      std::ranges::fill(shard.exp_avg.as<float>(), 0.01F);
      std::ranges::fill(shard.exp_avg_sq.as<float>(), 0.0001F);
    };
    if (round % 2 == 0) {
      fill();
      adamw();
      timings.adamw.push_back(seconds_per_call(calls, adamw));
      traffic();
      timings.traffic.push_back(seconds_per_call(calls, traffic));
    } else {
      traffic();
      timings.traffic.push_back(seconds_per_call(calls, traffic));
      fill();
      adamw();
      timings.adamw.push_back(seconds_per_call(calls, adamw));
    }
  }
  return timings;
}

/// All threads together; a round lasts as long as its slowest thread.
Timings measure(std::size_t count, Options const& options) {
  std::latch start(options.threads);
  std::vector<Timings> of_thread(static_cast<std::size_t>(options.threads));
  {
    std::vector<std::jthread> threads;
    for (Timings& timings : of_thread) {
      threads.emplace_back(
          [&] { timings = measure_thread(count / static_cast<std::size_t>(options.threads), options, start); });
    }
  }
  Timings slowest = of_thread.front();
  for (Timings const& timings : of_thread) {
    for (std::size_t round = 0; round < slowest.adamw.size(); ++round) {
      slowest.adamw[round] = std::max(slowest.adamw[round], timings.adamw[round]);
      slowest.traffic[round] = std::max(slowest.traffic[round], timings.traffic[round]);
    }
  }
  return slowest;
}

/// Why no bar applies to this size; empty if one does.
std::string why_not_judged(std::size_t count, Options const& options) {
  if (options.min_ratio == 0) return "not judged: --min-ratio 0";
  if (options.judge_from) return count < *options.judge_from ? "not judged: below --judge-from" : "";
  std::size_t const bytes_of_thread = count / static_cast<std::size_t>(options.threads) * kArrays * sizeof(float);
  return bytes_of_thread <= weft::discover_topology().l2_bytes ? "not judged: fits the caches" : "";
}

/// Prints one size's line and appends it to the JSON file. False when its ratio of medians misses the bar.
bool report(std::size_t count, Options const& options, Timings const& timings) {
  double const gigabytes = kBytesPerParameter * static_cast<double>(count) * 1e-9;
  auto const bandwidth = [&](double seconds) { return gigabytes / seconds; };
  double const adamw_best = bandwidth(*std::ranges::min_element(timings.adamw));
  double const traffic_best = bandwidth(*std::ranges::min_element(timings.traffic));
  double const adamw_median = bandwidth(median(timings.adamw));
  double const traffic_median = bandwidth(median(timings.traffic));
  double const ratio = adamw_median / traffic_median;
  std::string const excuse = why_not_judged(count, options);
  bool const holds = !excuse.empty() || ratio >= options.min_ratio;
  std::printf("%12zu %8d %12.2f %12.2f %8.3f %12.2f %12.2f %8.3f %10.3f  %s\n", count, options.threads, adamw_median,
              traffic_median, ratio, adamw_best, traffic_best, adamw_best / traffic_best, median(timings.adamw) * 1e3,
              excuse.empty() ? (holds ? "PASS" : "FAIL") : excuse.c_str());
  std::fflush(stdout);
  if (!options.json.empty()) {
    nlohmann::json const line{{"program", "adamw_perf"},
                              {"count", count},
                              {"threads", options.threads},
                              {"rounds", options.rounds},
                              {"adamw_gb_s", {{"median", adamw_median}, {"best", adamw_best}}},
                              {"traffic_gb_s", {{"median", traffic_median}, {"best", traffic_best}}},
                              {"ratio", ratio},
                              {"judged", excuse.empty()}};
    std::ofstream file(options.json, std::ios::app);
    file << line.dump() << '\n';
    if (!file.flush()) throw std::runtime_error("cannot write " + options.json);
  }
  return holds;
}

int run(Options const& options) {
  std::printf("# AdamW kernel against the same loads and stores without arithmetic, %d interleaved rounds, GB/s\n",
              options.rounds);
  std::printf("# %10s %8s %12s %12s %8s %12s %12s %8s %10s  ratio of medians at least %.2f?\n", "count", "threads",
              "adamw median", "moved median", "ratio", "adamw best", "moved best", "ratio", "adamw ms",
              options.min_ratio);
  bool passed = true;
  for (std::size_t const count : options.counts) {
    passed = report(count, options, measure(count, options)) && passed;
  }
  if (!passed) std::fprintf(stderr, "adamw_perf: a ratio of medians is below %.2f\n", options.min_ratio);
  return passed ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  weft::perf::CommandLine line(
      "adamw_perf",
      "Bandwidth of the CPU AdamW kernel against a kernel with the same loads and stores and no arithmetic");
  line.add("-n,--counts", options.counts, "parameters, one or several");
  line.add("-t,--threads", options.threads, "threads that share the parameters", {1, 1024});
  line.add("--rounds", options.rounds, "interleaved rounds", {1, 10000});
  line.add("--round-ms", options.round_ms, "least milliseconds a kernel runs per round", {1e-6, 1e6});
  line.add("--min-ratio", options.min_ratio, "exit with 1 when a ratio of medians is lower; 0: never", {0, 10});
  line.add("--judge-from", options.judge_from,
           "smallest count that --min-ratio applies to (default: what L2 cannot hold)");
  line.add("--json", options.json, "file to append one JSON line per size to");
  if (auto const code = line.parse(argc, argv)) return *code;
  if (std::ranges::any_of(options.counts,
                          [&](std::size_t n) { return n < static_cast<std::size_t>(options.threads); })) {
    std::fprintf(stderr, "adamw_perf: --counts must be at least --threads (%d)\n", options.threads);
    return 2;
  }
  try {
    return run(options);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "adamw_perf: %s\n", error.what());
    return 1;
  }
}
