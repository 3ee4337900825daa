#include "weft_schedule/outcome.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <utility>

#include "tool_output/interruption.hpp"
#include "weft/error.hpp"
#include "weft/recompute.hpp"

namespace weft::schedule_tool {

namespace {

std::chrono::milliseconds time_limit(Settings const& settings) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(settings.time_limit_s * 1e3));
}

/// Not above what rounding adds up to in a step of some 100,000 operators.
constexpr double kRounding = 1e-9;
/// What an advice has to gain.
constexpr double kWorthSaying = 0.999;
constexpr std::uint64_t kNoiseDraws = 8;
/// Operators of a step up to which layers to keep are looked for: beyond, a plan takes seconds.
constexpr std::size_t kMostForLayers = 100'000;

void end_progress() {
  if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");
}

ScheduleOptions options_for(PolicyChoice const& choice, Outcome const& outcome, Settings const& settings) {
  ScheduleOptions options{.policy = choice.policy,
                          .capacity = outcome.capacity,
                          .contention = outcome.planned.contention,
                          .time_limit = time_limit(settings),
                          .stop = tool_output::is_interrupted,
                          .seed = settings.seed,
                          .settings = {.prefetch_depth = choice.prefetch_depth}};
  if (isatty(STDERR_FILENO) != 0) {
    std::string const name = fmt::format("{}{}{}", outcome.label, outcome.label.empty() ? "" : ", ", choice.name());
    options.progress = [name](ScheduleProgress const& now) {
      fmt::print(stderr, "\r\033[K{}: {:.0f} s, {:.3f} ms found, at least {:.3f} needed ", name, now.elapsed.count(),
                 now.makespan_s * 1e3, now.bound_s * 1e3);
      static_cast<void>(std::fflush(stderr));
    };
  }
  return options;
}

Replays replay(Outcome const& outcome, CostModel const& model, Schedule const& schedule) {
  auto const seconds = [&](Disturbance const& disturbance) {
    return replay_schedule(outcome.planned.graph, model, schedule, disturbance);
  };
  double noise_s = 0;
  for (std::uint64_t draw = 1; draw <= kNoiseDraws; ++draw) noise_s += seconds({.noise = 0.2, .seed = draw});
  return {.noise_s = noise_s / static_cast<double>(kNoiseDraws),
          .slow_links_s = seconds({.compute = 0.8, .communication = 1.2}),
          .slow_computing_s = seconds({.compute = 1.2, .communication = 0.8})};
}

/// Where the step does not fit: with operators that are run again so that it does.
void recompute_to_fit(Outcome& outcome, CostModel const& model, Settings const& settings) {
  if (outcome.serial_peak_bytes <= outcome.capacity) return;
  OpGraph const given = std::move(outcome.planned.graph);
  RecomputeOptions options{.budget = outcome.capacity,
                           .collectives = settings.recompute_collectives,
                           .time_limit = time_limit(settings),
                           .stop = tool_output::is_interrupted};
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [](RecomputeProgress const& now) {
      fmt::print(stderr, "\r\033[Krecompute: {:.0f} s, {} at the least ", now.elapsed.count(),
                 in_gigabytes(now.peak_bytes));
      static_cast<void>(std::fflush(stderr));
    };
  }
  Recompute plan = plan_recompute(given, model, options);
  end_progress();
  outcome.recomputed = Recomputed{.seconds = plan.seconds, .bytes_before = outcome.serial_peak_bytes};
  for (OpId const op : plan.again) {
    outcome.recomputed->operators.push_back(given.ops[static_cast<std::size_t>(op)].name);
  }
  outcome.planned.graph = std::move(plan.graph);
  outcome.serial_peak_bytes = serial_peak_bytes(outcome.planned.graph, model);
}

/// Seconds of a step of a graph with these settings; none if it does not fit.
std::optional<double> step_with(ScheduleSettings const& advised, OpGraph const& graph, Outcome const& outcome) {
  try {
    return plan_schedule(graph, CostModel(outcome.planned.cluster),
                         {.policy = SchedulePolicy::settings,
                          .capacity = outcome.capacity,
                          .contention = outcome.planned.contention,
                          .settings = advised})
        .makespan_s;
  } catch (Error const& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    return std::nullopt;
  }
}

std::vector<int> gathered_layers(OpGraph const& graph) {
  std::set<int> layers;
  for (OpNode const& op : graph.ops) {
    bool const gathers = op.kind == OpKind::collective && op.collective.kind == CollectiveKind::all_gather;
    if (gathers && op.layer != kNone) layers.insert(op.layer);
  }
  return {layers.begin(), layers.end()};
}

/// As many of a model's last layers as make the step shortest, of all, half of them, and so on (not of the largest
/// steps), and of those that there is room for in the plan.
void try_to_keep(Outcome& outcome, Settings const& settings, IsOver const& is_over) {
  Advice& advice = outcome.advice;
  auto layers = gathered_layers(outcome.planned.graph);
  TransformerPlan plan = outcome.planned.plan;
  int const already = plan.layers_gathered_once;
  layers.resize(layers.size() - std::min(static_cast<std::size_t>(already), layers.size()));
  std::vector<std::size_t> counts{advice.kept_layers.size()};
  bool const many = outcome.planned.graph.ops.size() > kMostForLayers;
  for (std::size_t count = many ? 0 : layers.size(); count > 0; count /= 2) counts.push_back(count);
  advice.kept_layers.clear();
  double least = advice.settings_s * kWorthSaying;
  for (std::size_t const count : counts) {
    if (count == 0 || count > layers.size() || is_over()) continue;
    plan.layers_gathered_once = already + static_cast<int>(count);
    auto const seconds = step_with(advice.settings, graph_tool::read(settings, plan), outcome);
    if (!seconds || *seconds >= least) continue;
    least = *seconds;
    advice.kept_s = seconds;
    advice.kept_layers.assign(layers.end() - static_cast<std::ptrdiff_t>(count), layers.end());
  }
}

std::vector<PlannedTime> times_of(Outcome const& outcome) {
  std::vector<PlannedTime> times;
  for (Launch const& launch : outcome.main_schedule().launches) {
    for (OpId const op : launch.ops) {
      times.push_back({.name = outcome.planned.graph.ops[static_cast<std::size_t>(op)].name,
                       .start = launch.start_s,
                       .seconds = launch.end_s - launch.start_s});
    }
  }
  return times;
}

void advise(Outcome& outcome, Settings const& settings) {
  auto const attempt = [&](ScheduleSettings const& each) { return step_with(each, outcome.planned.graph, outcome); };
  auto const until = std::chrono::steady_clock::now() + time_limit(settings);
  auto const is_over = [&] { return std::chrono::steady_clock::now() >= until || tool_output::is_interrupted(); };
  outcome.advice = advice_from(outcome.planned.graph, outcome.main_schedule(), attempt, is_over);
  auto const strategy = outcome.planned.plan.strategy;
  bool const reshards = strategy == TrainingStrategy::zero3 || strategy == TrainingStrategy::hsdp;
  if (!settings.model.empty() && reshards && !outcome.recomputed && !is_over()) try_to_keep(outcome, settings, is_over);
}

}  // namespace

Schedule const& Outcome::main_schedule() const {
  for (auto const& schedule : schedules) {
    if (schedule.policy == to_string(SchedulePolicy::weft)) return schedule;
  }
  return *std::min_element(schedules.begin(), schedules.end(),
                           [](auto const& a, auto const& b) { return a.makespan_s < b.makespan_s; });
}

void check_against_bound(Schedule const& schedule) {
  double const bound = schedule.bound.within_memory_s();
  if (schedule.makespan_s >= bound * (1 - kRounding)) return;
  throw InternalError(fmt::format(
      "internal error: the plan of {} takes {} ms, and none can take less than {} ms: the plan or the bound "
      "is wrong; please report it with the graph (--graph-out) and the command line",
      schedule.policy, schedule.makespan_s * 1e3, bound * 1e3));
}

Outcome plan_case(Case planned, Settings const& settings, std::string label, ImportedTrace const* measured) {
  Outcome outcome{.planned = std::move(planned), .label = std::move(label)};
  CostModel const model(outcome.planned.cluster);
  outcome.resident_bytes = resident_bytes(outcome.planned.graph);
  outcome.serial_peak_bytes = serial_peak_bytes(outcome.planned.graph, model);
  outcome.capacity = outcome.planned.memory.resolved(outcome.serial_peak_bytes, outcome.resident_bytes);
  if (settings.recompute) recompute_to_fit(outcome, model, settings);
  for (auto const& policy : settings.policies) {
    auto const options = options_for(policy, outcome, settings);
    try {
      outcome.schedules.push_back(plan_schedule(outcome.planned.graph, model, options));
    } catch (Error const& error) {
      if (error.code() != ErrorCode::out_of_memory) throw;
      throw Error(error.code(), fmt::format("{}: {} are short{}", error.what(),
                                            in_gigabytes(outcome.serial_peak_bytes - outcome.capacity),
                                            settings.recompute ? "" : "; --recompute auto may make it fit"));
    }
    outcome.schedules.back().policy = policy.name();
    end_progress();
    check_against_bound(outcome.schedules.back());
    if (settings.replay) outcome.replays.push_back(replay(outcome, model, outcome.schedules.back()));
  }
  advise(outcome, settings);
  if (measured != nullptr) outcome.measured = compare_plan(times_of(outcome), times_of(*measured));
  return outcome;
}

}  // namespace weft::schedule_tool
