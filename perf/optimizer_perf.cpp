// Compares a whole optimizer step on one rank with its loads and stores without arithmetic, and measures every
// optimizer's update alone, in interleaved rounds.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/command_line.hpp"
#include "common/median.hpp"
#include "optimizer/work.hpp"

namespace weft::perf {
namespace {

struct Options {
  std::size_t count = 50'000'000;
  std::size_t threads = 2;
  int rounds = 9;
  double min_ratio = 0.9;
  bool others = true;
  std::string json;
};

double seconds_of(std::function<void()> const& call) {
  auto const start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Appends to the JSON file and prints.
void report(Options const& options, std::string const& name, std::vector<double> const& seconds, double bytes) {
  double const ms = median(seconds) * 1e3;
  double const best = *std::ranges::min_element(seconds) * 1e3;
  double const bandwidth = bytes * static_cast<double>(options.count) / (ms * 1e6);
  std::printf("  %-28s %8.0f %10.2f %10.2f %8.1f\n", name.c_str(), bytes, ms, best, bandwidth);
  std::fflush(stdout);
  if (options.json.empty()) return;
  std::ofstream file(options.json, std::ios::app);
  file << nlohmann::json{{"program", "optimizer_perf"},
                         {"name", name},
                         {"count", options.count},
                         {"threads", options.threads},
                         {"median_ms", ms},
                         {"best_ms", best},
                         {"gb_s", bandwidth}}
              .dump()
       << '\n';
  if (!file.flush()) throw Error(ErrorCode::system, "cannot write " + options.json);
}

bool whole_step(Options const& options) {
  // After traffic() a step could not use the values, so each has its own memory.
  OptimizerWork work(options.count, options.threads, AdamWOptions{}, false);
  OptimizerWork moved(options.count, options.threads, SgdOptions{}, false);
  std::vector<double> steps;
  std::vector<double> traffic;
  for (int round = -1; round < options.rounds; ++round) {
    for (bool const first : {round % 2 == 0, round % 2 != 0}) {
      OptimizerWork& one = first ? work : moved;
      one.write_gradients();
      double const seconds = seconds_of([&] { first ? one.step() : one.traffic(); });
      if (round >= 0) (first ? steps : traffic).push_back(seconds);
    }
  }
  report(options, "AdamW step", steps, 38);
  report(options, "its loads and stores", traffic, 38);
  double const ratio = median(traffic) / median(steps);
  std::printf("# step at %.3f of the speed of its loads and stores, bar %.2f: %s\n", ratio, options.min_ratio,
              ratio >= options.min_ratio ? "PASS" : "FAIL");
  return ratio >= options.min_ratio;
}

void updates(Options const& options) {
  struct Kind {
    char const* name;
    OptimizerOptions options;
    double bytes;
    StateType state = StateType::f32;
  };
  for (Kind const& kind :
       {Kind{"AdamW", AdamWOptions{}, 28}, Kind{"AdamW, 8-bit states", AdamWOptions{}, 16, StateType::block8},
        Kind{"Adam", AdamOptions{}, 28}, Kind{"SGD", SgdOptions{}, 12},
        Kind{"SGD, momentum", SgdOptions{.momentum = 0.9}, 20}, Kind{"Lion", LionOptions{}, 20},
        Kind{"Adagrad", AdagradOptions{}, 20}, Kind{"Lamb (two passes)", LambOptions{}, 40}}) {
    OptimizerWork work(options.count, options.threads, kind.options, true, kind.state);
    work.update();
    std::vector<double> seconds;
    for (int round = 0; round < options.rounds; ++round) seconds.push_back(seconds_of([&] { work.update(); }));
    report(options, kind.name, seconds, kind.bytes);
  }
}

int run(Options const& options) {
  std::printf("# %zu parameters, %zu threads, %d rounds\n", options.count, options.threads, options.rounds);
  std::printf(
      "# step: f32 gradients looked at, unscaled, clipped, AdamW on f32 originals, bf16 parameters, gradients "
      "zeroed\n");
  std::printf("# %-28s %8s %10s %10s %8s\n", "", "B each", "median ms", "best ms", "GB/s");
  bool const holds = whole_step(options);
  if (options.others) updates(options);
  if (!holds) std::fprintf(stderr, "optimizer_perf: the step is below its bar\n");
  return holds ? 0 : 1;
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  weft::perf::Options options;
  weft::perf::CommandLine line("optimizer_perf",
                               "An optimizer step beside its memory traffic, and every optimizer's update");
  line.add("-n,--count", options.count, "parameters", {1000, 1e9});
  line.add("-t,--threads", options.threads, "threads that share them", {1, 1024});
  line.add("--rounds", options.rounds, "interleaved rounds", {1, 10000});
  line.add("--min-ratio", options.min_ratio, "bar of the step's speed over its traffic's; 0: none");
  line.add_choice("--others", options.others, "0/1: also every optimizer's update alone");
  line.add("--json", options.json, "file to append JSON lines to");
  if (auto const code = line.parse(argc, argv)) return *code;
  try {
    return weft::perf::run(options);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "optimizer_perf: %s\n", error.what());
    return 1;
  }
}
