// Measures how much the executor's plan of a data-parallel step gains over program order and over buckets of one size,
// and how well its time is predicted. The variants take turns in one run, on an emulated link.
#include <pthread.h>
#include <sched.h>

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/command_line.hpp"
#include "executor/stage_model.hpp"
#include "weft/weft.hpp"

namespace {

using weft::perf::StageModel;
using weft::perf::StageWork;

struct Options {
  int ranks = 2;
  StageModel::Shape shape;
  double stage_ms = 20;
  std::vector<double> ratios{0.8, 1.0, 1.2};
  std::vector<double> caps_mb{1, 5, 25, 100};
  double latency_us = 50;
  int profile_steps = 5;
  int steps = 11;
  std::string json;
};

// The bars.
constexpr double kPrediction = 0.10;  // relative difference between measured and predicted time
constexpr double kOverProgram = 1.3;  // time in program order / Weft's time
constexpr double kOver25 = 1.05;      // time with buckets of 25 MB / Weft's time
constexpr double kOverBest = 1.02;    // Weft's time / time with the best of all bucket sizes
constexpr double kLeastStageMs = 20;

struct Way {
  std::string name;
  weft::StepPlanner planner;
  bool blocking = false;
  std::unique_ptr<weft::PlanExecutor> executor{};
  std::vector<double> seconds{};

  [[nodiscard]] double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  [[nodiscard]] double predicted() const { return executor->plan().makespan_s; }
};

std::vector<Way> ways_of(Options const& options) {
  std::vector<Way> ways;
  ways.push_back({"weft", {}});
  ways.push_back({"program order", weft::program_schedule, true});
  for (double const mb : options.caps_mb) {
    ways.push_back({fmt::format("buckets of {:g} MB", mb), [mb](auto const& graph, auto const& model) {
                      return weft::bucket_schedule(graph, model, static_cast<std::int64_t>(mb * 1e6));
                    }});
  }
  return ways;
}

double sum(weft::OpGraph const& graph, std::span<weft::OpTiming const> timings) {
  double seconds = 0;
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].kind == weft::OpKind::collective) continue;
    seconds += std::chrono::duration<double>(timings[op].finished - timings[op].started).count();
  }
  return seconds;
}

double largest(weft::Communicator& world, double value) {
  weft::BufferView const one{&value, 1, weft::DataType::f64};
  world.all_reduce(one, one, weft::ReduceOp::max).wait();
  return value;
}

/// The cluster that is assumed before the link is measured.
weft::Cluster assumed(int ranks) {
  return {.name = "this host",
          .ranks_per_host = ranks,
          .flops_per_s = 50,  // of a stage's one or two: see StageModel
          .memory_bytes_per_s = 1e10,
          .within = {1e9, 20e-6},
          .between = {1e9, 20e-6}};
}

class Bench {
 public:
  Bench(weft::Communicator& world, Options const& options)
      : world_(world),
        options_(options),
        work_(world, options.stage_ms / 1e3),
        model_(options.shape, world.rank(), world.size(), work_) {}

  /// True when every bar holds.
  bool run() {
    double const compute = compute_alone();
    bool good = true;
    for (double const ratio : options_.ratios) good = run_ratio(ratio, compute) && good;
    return good;
  }

 private:
  weft::PlanExecutorOptions options_of(Way const& way) const {
    return {.cluster = assumed(world_.size()),
            .planner = way.planner,
            .profile_steps = options_.profile_steps,
            .blocking = way.blocking};
  }

  /// Seconds that a step computes on the slower rank.
  double compute_alone() {
    weft::PlanExecutorOptions options = options_of({"", weft::program_schedule, true});
    options.profile_steps = 0;
    weft::PlanExecutor executor(world_, model_.graph(), model_.bindings(), options);
    model_.use(executor);
    std::vector<double> seconds;
    for (int step = 0; step < 4; ++step) {
      executor.step();
      if (step > 0) seconds.push_back(largest(world_, sum(model_.graph(), executor.timings())));
    }
    return *std::min_element(seconds.begin(), seconds.end());
  }

  bool run_ratio(double ratio, double compute) {
    int const n = world_.size();
    weft::CommunicatorOptions with_link = world_.options();
    with_link.emulated_link =
        weft::EmulatedLink{std::chrono::nanoseconds(std::llround(options_.latency_us * 1e3)),
                           2.0 * (n - 1) / n * static_cast<double>(model_.bytes()) / (ratio * compute)};
    weft::Communicator linked = world_.duplicate(with_link);
    std::vector<Way> ways = ways_of(options_);
    for (Way& way : ways) {
      way.executor = std::make_unique<weft::PlanExecutor>(linked, model_.graph(), model_.bindings(), options_of(way));
    }
    for (int step = 0; step < 1 + options_.profile_steps + options_.steps; ++step) {
      for (std::size_t turn = 0; turn < ways.size(); ++turn) {
        take_step(ways[(turn + static_cast<std::size_t>(step)) % ways.size()], step);
      }
    }
    return judge(ratio, compute, with_link.emulated_link->describe(), ways);
  }

  void take_step(Way& way, int step) {
    model_.use(*way.executor);
    model_.begin(step);
    world_.barrier().wait();
    auto const start = std::chrono::steady_clock::now();
    way.executor->step();
    double const took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    double const slowest = largest(world_, took);
    if (step > options_.profile_steps) way.seconds.push_back(slowest);
  }

  bool judge(double ratio, double compute, std::string const& link, std::vector<Way> const& ways) {
    bool const leader = world_.rank() == 0;
    Way const& weft = ways[0];
    std::size_t const wrong = model_.wrong();
    double best_s = ways[2].median();
    double over25 = 0;
    if (leader) {
      fmt::print("# communication / compute {:.2f}: {:.0f} MB, computing {:.1f} ms, link {}\n", ratio,
                 static_cast<double>(model_.bytes()) / 1e6, compute * 1e3, link);
      fmt::print("# {:<18}{:>11}{:>13}{:>9}{:>10}{:>10}{:>9}\n", "", "median ms", "predicted ms", "bound ms",
                 "launches", "over it", "off");
    }
    for (std::size_t i = 0; i < ways.size(); ++i) {
      Way const& way = ways[i];
      auto const& launches = way.executor->plan().launches;
      auto const sent = std::count_if(launches.begin(), launches.end(), [](weft::Launch const& launch) {
        return launch.resource == weft::Resource::within_host;
      });
      if (i >= 2) best_s = std::min(best_s, way.median());
      if (way.name == "buckets of 25 MB") over25 = way.median() / weft.median();
      if (!leader) continue;
      fmt::print("  {:<18}{:>11.1f}{:>13.1f}{:>9.1f}{:>10}{:>9.3f}x{:>+8.1f}%\n", way.name, way.median() * 1e3,
                 way.predicted() * 1e3, way.executor->plan().bound.best_s() * 1e3, sent, way.median() / weft.median(),
                 100 * (way.median() / way.predicted() - 1));
      lines_.push_back({{"ratio", ratio},
                        {"name", way.name},
                        {"median_ms", way.median() * 1e3},
                        {"predicted_ms", way.predicted() * 1e3},
                        {"bound_ms", way.executor->plan().bound.best_s() * 1e3},
                        {"launches", sent}});
    }
    bool good = true;
    auto const bar = [&](char const* what, double value, bool holds, std::string const& wanted) {
      good = good && holds;
      if (leader) fmt::print("{}: {} {:.3f}, {}\n", holds ? "PASS" : "FAIL", what, value, wanted);
    };
    double const off = weft.median() / weft.predicted();
    bar("measured over predicted step", off, std::abs(off - 1) <= kPrediction, "0.9 to 1.1");
    double const over_program = ways[1].median() / weft.median();
    bar("program order over weft", over_program, over_program >= kOverProgram, "at least 1.3");
    if (over25 > 0) bar("25 MB buckets over weft", over25, over25 >= kOver25, "at least 1.05");
    bar("weft over the best size of buckets", weft.median() / best_s, weft.median() <= kOverBest * best_s,
        "at most 1.02");
    if (wrong > 0) bar("wrong elements", static_cast<double>(wrong), false, "none");
    if (leader) write_json();
    std::fflush(stdout);
    return largest(world_, good ? 0 : 1) == 0;
  }

  void write_json() {
    if (options_.json.empty()) return;
    std::ofstream out(options_.json, std::ios::app);
    for (auto const& line : lines_) out << line.dump() << "\n";
    lines_.clear();
  }

  weft::Communicator& world_;
  Options const& options_;
  StageWork work_;
  StageModel model_;
  std::vector<nlohmann::json> lines_;
};

/// Binds a rank, with all threads that it creates from here on, to one core.
void pin(int rank) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(rank) % std::thread::hardware_concurrency(), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  weft::perf::CommandLine line(
      "executor_perf",
      "Plans of a data-parallel step beside program order and buckets of one size, on an emulated link");
  line.add("--ranks", options.ranks, "local ranks", {2, 64});
  line.add("--layers", options.shape.layers, "of the model", {1, 1000});
  line.add("--width", options.shape.width, "of its layers", {1, 1 << 14});
  line.add("--stage-ms", options.stage_ms, "what a stage computes at least", {0.1, 1e4});
  line.add("--ratios", options.ratios, "communication over compute");
  line.add("--caps-mb", options.caps_mb, "sizes of buckets");
  line.add("--latency-us", options.latency_us, "of the link, for each step of a ring");
  line.add("--profile-steps", options.profile_steps, "that are measured first", {1, 1000});
  line.add("--steps", options.steps, "that count, after those", {1, 10000});
  line.add("--json", options.json, "append every row as a line of JSON");
  if (auto const code = line.parse(argc, argv)) return *code;
  if (options.stage_ms < kLeastStageMs) fmt::print("# stages of less than {} ms\n", kLeastStageMs);
  try {
    return weft::launch({.ranks = options.ranks}, [&](weft::Communicator& world) {
      pin(world.rank());
      return Bench(world, options).run() ? 0 : 1;
    });
  } catch (std::exception const& error) {
    weft::report_failure(fmt::format("executor_perf: {}", error.what()));
    return 2;
  }
}
