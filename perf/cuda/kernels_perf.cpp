// Compares CUDA kernels with the device-to-device copy of as many bytes, in interleaved rounds.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/command_line.hpp"
#include "common/median.hpp"
#include "cuda/cases.hpp"
#include "runtime/cuda/check.hpp"
#include "weft/error.hpp"
#include "weft/event.hpp"

namespace {

using namespace weft;
using perf::Case;
using perf::CaseMaker;
using perf::median;
using Seconds = std::chrono::duration<double>;

struct Options {
  double giga_parameters = 1;
  std::size_t tensors = 10'000;
  int rounds = 7;
  int calls = 10;
  std::string filter;
  std::string json;
};

/// A copy from one half of its memory to the other.
class Copy {
 public:
  explicit Copy(std::size_t bytes) : bytes_(bytes), memory_(perf::random_memory(bytes / 2, DataType::f32)) {}

  void run(Stream const& stream) const {
    cuda::copy(memory_.view().slice(bytes_ / 4, bytes_ / 4), memory_.view().slice(0, bytes_ / 4), stream);
  }
  [[nodiscard]] double bytes() const { return 2 * static_cast<double>(bytes_); }

 private:
  std::size_t bytes_;
  Buffer memory_;
};

struct Times {
  double device = 0;  ///< seconds a call
  double host = 0;    ///< that the calling thread was busy
};

template <typename F>
Times time_calls(int calls, Stream& stream, F const& run) {
  Event before;
  Event after;
  before.record(stream);
  auto const start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) run(stream);
  auto const enqueued = std::chrono::steady_clock::now();
  after.record(stream);
  after.synchronize();
  return {Seconds(before.elapsed_until(after)).count() / calls, Seconds(enqueued - start).count() / calls};
}

/// One row of the table.
nlohmann::json measure(Case const& one, Copy const& copy, Options const& options, Stream& stream) {
  std::vector<double> device, host, copies;
  auto const run_copy = [&](Stream const& on) { copy.run(on); };
  time_calls(2, stream, one.run);
  time_calls(2, stream, run_copy);
  for (int round = 0; round < options.rounds; ++round) {
    auto const times = time_calls(options.calls, stream, one.run);
    device.push_back(times.device);
    host.push_back(times.host);
    copies.push_back(time_calls(options.calls, stream, run_copy).device);
  }
  double const rate = one.bytes / median(device) * 1e-9;
  double const copy_rate = copy.bytes() / median(copies) * 1e-9;
  nlohmann::json row{{"program", "cuda_kernels_perf"}, {"name", one.name},
                     {"elements", one.elements},       {"bytes", one.bytes},
                     {"ms", median(device) * 1e3},     {"best_ms", *std::ranges::min_element(device) * 1e3},
                     {"host_us", median(host) * 1e6},  {"gb_s", rate},
                     {"copy_gb_s", copy_rate},         {"share_of_copy", rate / copy_rate}};
  if (one.bar > 0) {
    row["bar"] = one.bar;
    row["holds"] = rate / copy_rate >= one.bar;
  }
  return row;
}

void print(nlohmann::json const& row) {
  char const* const verdict = !row.contains("bar") ? "" : (row["holds"].get<bool>() ? "PASS" : "FAIL");
  std::printf("%-44s %12zu %10.4f %10.1f %10.1f %10.1f %8.3f  %s\n", row["name"].get<std::string>().c_str(),
              row["elements"].get<std::size_t>(), row["ms"].get<double>(), row["host_us"].get<double>(),
              row["gb_s"].get<double>(), row["copy_gb_s"].get<double>(), row["share_of_copy"].get<double>(), verdict);
  std::fflush(stdout);
}

/// How many parameters fit next to the copy: an optimizer keeps up to 20 bytes for each.
std::size_t parameters_that_fit(double giga) {
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  auto const wanted = static_cast<std::size_t>(giga * 1e9);
  return std::min(wanted, free / 30) / 64 * 64;
}

bool run(Options const& options) {
  Stream stream = cuda::make_stream();
  std::size_t const elements = parameters_that_fit(options.giga_parameters);
  auto cases = perf::optimizer_cases(elements);
  cases.push_back(perf::many_tensors_case(options.tensors, 1000));
  for (auto const& one : perf::model_cases(16'384, 4096, 50'304)) cases.push_back(one);
  Copy const copy(elements * 2);
  std::printf("# %-42s %12s %10s %10s %10s %10s %8s  bar\n", "kernels", "elements", "ms", "host us", "GB/s",
              "copy GB/s", "share");
  bool holds = true;
  for (CaseMaker const& maker : cases) {
    if (maker.name.find(options.filter) == std::string::npos) continue;
    auto const row = measure(maker.make(), copy, options, stream);
    print(row);
    holds = holds && row.value("holds", true);
    if (options.json.empty()) continue;
    std::ofstream file(options.json, std::ios::app);
    file << row.dump() << '\n';
    if (!file.flush()) throw std::runtime_error("cannot write " + options.json);
  }
  return holds;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  weft::perf::CommandLine line("cuda_kernels_perf",
                               "Bandwidth of the CUDA kernels, and the device-to-device copy's in the same rounds");
  line.add("-n,--giga-parameters", options.giga_parameters, "1e9 parameters an optimizer has, or what fits",
           {1e-6, 1e6});
  line.add("--tensors", options.tensors, "small tensors of the step that measures launches", {1, 1e9});
  line.add("--rounds", options.rounds, "interleaved rounds", {1, 1000});
  line.add("--calls", options.calls, "calls a round", {1, 100'000});
  line.add("--filter", options.filter, "only cases whose name has this in it");
  line.add("--json", options.json, "file to append one JSON line per case to");
  if (auto const code = line.parse(argc, argv)) return *code;
  try {
    return run(options) ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "cuda_kernels_perf: %s\n", error.what());
    return 2;
  }
}
