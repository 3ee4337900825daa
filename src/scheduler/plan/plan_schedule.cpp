#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "scheduler/plan/bounds.hpp"
#include "scheduler/plan/exact_order.hpp"
#include "scheduler/plan/merge_collectives.hpp"
#include "scheduler/plan/policies.hpp"
#include "scheduler/plan/problem.hpp"
#include "scheduler/plan/replay_tasks.hpp"
#include "scheduler/plan/run_tasks.hpp"
#include "scheduler/plan/serial_order.hpp"
#include "weft/error.hpp"
#include "weft/schedule.hpp"

namespace weft {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, kSchedulePolicies> kPolicyNames = {
    "weft", "blocking", "asap", "alap", "prefetch1", "prefetch2", "xla", "inductor", "random"};

constexpr double kXlaCombiner = 30 << 20;
constexpr int kRandomOrders = 8;
/// The search ends after so many plans: planning takes about as long for graphs of any size up to 60,000 operators, and
/// grows with the size beyond.
constexpr std::size_t kOperatorsLookedAt = 2'400'000;
constexpr std::size_t kLeastAttempts = 24;
constexpr std::size_t kMostAttempts = 160;
constexpr std::uint64_t kSampleSeed = 1;
constexpr int kMostRepeats = 50;
/// Plans longer than the best by this share are not looked at further, and how many others are.
constexpr double kNear = 0.002;
constexpr std::size_t kMostNear = 40;

std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

class Planner {
 public:
  Planner(OpGraph const& graph, CostModel const& model, ScheduleOptions const& options)
      : options_(options), began_(Clock::now()), unmerged_(graph, model), serial_(low_memory_order(unmerged_)) {
    std::int64_t const peak = serial_peak(unmerged_, serial_);
    capacity_ = options.capacity.value_or(peak);
    if (peak > capacity_) refuse_capacity(peak);
    serial_bytes_ = peak;
    bound_ = lower_bound(unmerged_, options.contention, capacity_);
  }

  Schedule run() {
    switch (options_.policy) {
      case SchedulePolicy::weft: search(); break;
      case SchedulePolicy::blocking: blocking(); break;
      case SchedulePolicy::asap: gated({}); break;
      case SchedulePolicy::alap: alap({}); break;
      case SchedulePolicy::prefetch1: gated({.depth = 1}); break;
      case SchedulePolicy::prefetch2: gated({.depth = 2}); break;
      case SchedulePolicy::xla: alap({.gather_bytes = kXlaCombiner, .reduce_bytes = kXlaCombiner, .share = 1}); break;
      case SchedulePolicy::inductor: gated({.depth = 1}); break;
      case SchedulePolicy::random: random(); break;
    }
    return result();
  }

 private:
  /// What is searched over.
  struct Choice {
    double gather_bytes = 0;  ///< MergeRules
    double reduce_bytes = 0;
    double share = 0.3;
    double taper = 1;
    int depth = 0;      ///< of prefetch_gates(); 0: gathers wait for memory only
    int window = 1000;  ///< RunRules
  };

  [[noreturn]] void refuse_capacity(std::int64_t peak) const {
    bool const exact = exact_order(unmerged_).has_value();
    auto const& name = unmerged_.graph().name;
    throw Error(
        ErrorCode::out_of_memory,
        exact ? fmt::format("graph {}: no order of its operators takes {} bytes or less: the best of all takes {}, of "
                            "which {} are there all the time",
                            name, capacity_, peak, unmerged_.resident_bytes())
              : fmt::format("graph {}: no order of its operators was found that takes {} bytes or less: the best takes "
                            "{}, of which {} are there all the time; none can take less than {}",
                            name, capacity_, peak, unmerged_.resident_bytes(), serial_bound(unmerged_)));
  }

  /// Tries one way to merge and one to run, unless they were tried before. Merging looks at each launch's memory by
  /// itself; where that turns out to be too much for all of them, less is merged.
  template <typename Rules>
  void attempt(Choice choice, SchedulePolicy rule, Rules const& rules_for) {
    std::unique_ptr<Problem> problem;
    std::vector<TaskId> serial;
    Merged merged;
    while (true) {
      merged = merge_collectives(unmerged_, serial_,
                                 {.gather_bytes = static_cast<std::int64_t>(choice.gather_bytes),
                                  .reduce_bytes = static_cast<std::int64_t>(choice.reduce_bytes),
                                  .capacity = capacity_,
                                  .share = choice.share,
                                  .taper = choice.taper});
      if (tried_.count({merged.launches, rule, choice.depth, choice.window}) > 0) return;
      problem = std::make_unique<Problem>(unmerged_.graph(), unmerged_.model(), merged.launches);
      serial = merged.launches.empty() ? serial_ : serial_order_by(merged, *problem);
      if (merged.launches.empty() || serial_peak(*problem, serial) <= capacity_) break;
      choice.gather_bytes /= 2;
      choice.reduce_bytes /= 2;
    }
    ++attempts_;
    tried_.emplace(std::move(merged.launches), rule, choice.depth, choice.window);
    RunRules rules = rules_for(*problem, serial);
    rules.serial = std::move(serial);
    if (rules.urgency.empty()) rules.urgency = urgency_by_order(rules.serial);
    rules.capacity = capacity_;
    rules.contention = options_.contention;
    if (best_) rules.give_up_s = best_run_.makespan_s * (1 + kNear);
    Run run = run_tasks(*problem, rules);
    if (!run.complete) return;
    bool const better = !best_ || run.makespan_s < best_run_.makespan_s;
    if (better) {
      std::swap(best_, problem);
      std::swap(best_run_, run);
    }
    if (problem && near_.size() < kMostNear) near_.push_back({std::move(problem), std::move(run)});
  }

  /// Of the plans that are hardly longer than the best, that which suffers least when sending takes longer and
  /// computing shorter than planned, or the reverse; but none that is longer than another policy's.
  void prefer_steady(double rival_s) {
    constexpr std::array<Disturbance, 2> disturbances = {Disturbance{.compute = 0.8, .communication = 1.2},
                                                         Disturbance{.compute = 1.2, .communication = 0.8}};
    double const most = std::min(rival_s, best_run_.makespan_s * (1 + kNear));
    near_.push_back({std::move(best_), std::move(best_run_)});
    std::vector<std::array<double, disturbances.size()>> replayed;
    std::array<double, disturbances.size()> least{};
    least.fill(std::numeric_limits<double>::infinity());
    for (auto const& [problem, run] : near_) {
      auto& times = replayed.emplace_back();
      times.fill(std::numeric_limits<double>::infinity());
      if (run.makespan_s > most) continue;
      for (std::size_t i = 0; i < times.size(); ++i) {
        times[i] = replay_tasks(*problem, run.started, capacity_, options_.contention, disturbances[i]);
        least[i] = std::min(least[i], times[i]);
      }
    }
    auto const loss = [&](std::size_t plan) {
      double worst = 0;
      for (std::size_t i = 0; i < least.size(); ++i) worst = std::max(worst, replayed[plan][i] / least[i]);
      return worst;
    };
    std::size_t steadiest = near_.size() - 1;
    for (std::size_t plan = 0; plan < near_.size(); ++plan) {
      if (loss(plan) < loss(steadiest)) steadiest = plan;
    }
    best_ = std::move(near_[steadiest].problem);
    best_run_ = std::move(near_[steadiest].run);
  }

  void blocking() {
    attempt({}, SchedulePolicy::blocking, [](auto const&, auto const&) { return RunRules{.blocking = true}; });
  }
  void gated(Choice const& choice) {
    attempt(choice, SchedulePolicy::asap, [&](Problem const& problem, auto const& serial) {
      RunRules rules{.window = choice.window};
      if (choice.depth > 0) rules.gates = prefetch_gates(problem, serial, choice.depth);
      return rules;
    });
  }
  void alap(Choice const& choice) {
    attempt(choice, SchedulePolicy::alap, [](Problem const& problem, auto const& serial) {
      return RunRules{.gates = late_gates(problem, serial, 1)};
    });
  }
  void random() {
    std::mt19937_64 random(options_.seed);
    for (int i = 0; i < kRandomOrders; ++i) {
      tried_.clear();
      attempt({}, SchedulePolicy::random, [&](Problem const& problem, auto const&) {
        std::vector<double> urgency(problem.tasks().size());
        for (double& each : urgency) each = static_cast<double>(random() >> 11);
        return RunRules{.urgency = std::move(urgency)};
      });
    }
  }

  [[nodiscard]] std::size_t most_attempts() const {
    return std::clamp(kOperatorsLookedAt / std::max<std::size_t>(1, unmerged_.tasks().size()), kLeastAttempts,
                      kMostAttempts);
  }
  [[nodiscard]] bool is_over() const {
    if (attempts_ > most_attempts()) return true;
    return Clock::now() - began_ > options_.time_limit || best_run_.makespan_s <= bound_.within_memory_s() * (1 + 1e-4);
  }

  void consider(Choice const& choice) {
    if (is_over()) return;
    double const before = best_run_.makespan_s;
    gated(choice);
    if (best_run_.makespan_s < before) best_choice_ = choice;
    if (options_.progress) options_.progress({Clock::now() - began_, best_run_.makespan_s, bound_.within_memory_s()});
  }

  template <typename Change>
  void consider_with(Change const& change) {
    Choice choice = best_choice_;
    change(choice);
    consider(choice);
  }

  /// Choices by chance, always the same ones, for a part of the search: what is best in turns depends much on where
  /// turns begin.
  void sample(double total) {
    std::mt19937_64 random(kSampleSeed);
    auto const between = [&](double low, double high) {
      double const share = static_cast<double>(random() >> 11) / static_cast<double>(std::uint64_t{1} << 53);
      return low * std::pow(high / low, share);
    };
    std::size_t const until = attempts_ + most_attempts() / 3;
    while (attempts_ < until && !is_over()) {
      std::size_t const before = attempts_;
      Choice choice;
      choice.gather_bytes = between(std::max(1.0, total / 4096), std::max(1.0, total / 8));
      choice.reduce_bytes = between(std::max(1.0, total / 4096), std::max(1.0, total / 8));
      choice.share = between(0.05, 1);
      choice.taper = between(0.1, 5);
      choice.depth = static_cast<int>(between(1, 5.99)) - 1;
      choice.window = random() % 4 == 0 ? 16 : 1000;
      consider(choice);
      if (attempts_ == before && ++repeats_ > kMostRepeats) return;  // small graphs have few ways to merge
    }
  }

  /// The other policies first: the search is never worse. Then choices by chance; then, from the best, one choice after
  /// another in smaller and smaller steps, as long as that helps.
  void search() {
    gated({});
    for (int const depth : {1, 2}) consider({.depth = depth});
    for (int const window : {0, 4, 16, 64}) consider({.window = window});
    if (!is_over()) alap({});
    if (!is_over()) alap({.gather_bytes = kXlaCombiner, .reduce_bytes = kXlaCombiner, .share = 1});
    double rival_s = best_run_.makespan_s;
    double total = 0;
    for (OpNode const& op : unmerged_.graph().ops) {
      if (op.kind == OpKind::collective) total += static_cast<double>(op.collective.bytes);
    }
    for (double const share : {0.1, 0.3}) {
      for (double const taper : {0.2, 1.0}) {
        consider({.gather_bytes = total, .reduce_bytes = total, .share = share, .taper = taper});
      }
    }
    sample(total);
    for (double const step : {4.0, 2.0, 1.4, 1.2}) {
      for (bool again = true; again && !is_over();) {
        double const before = best_run_.makespan_s;
        for (double const factor : {1 / step, step}) {
          consider_with([&](Choice& choice) { choice.gather_bytes *= factor; });
          consider_with([&](Choice& choice) { choice.reduce_bytes *= factor; });
          consider_with([&](Choice& choice) { choice.taper *= factor; });
          consider_with([&](Choice& choice) { choice.share = std::min(1.0, choice.share * factor); });
        }
        for (int const depth : {0, 1, 2, 3, 4}) consider_with([&](Choice& choice) { choice.depth = depth; });
        for (int const window : {0, 4, 16, 64, 1000}) {
          consider_with([&](Choice& choice) { choice.window = window; });
        }
        again = best_run_.makespan_s < before * (1 - 1e-3);
      }
    }
    double const before = best_run_.makespan_s;
    if (!is_over()) random();
    if (best_run_.makespan_s < before) rival_s = best_run_.makespan_s;
    prefer_steady(rival_s);
  }

  Schedule result() const {
    Schedule schedule;
    schedule.policy = to_string(options_.policy);
    schedule.makespan_s = best_run_.makespan_s;
    schedule.bound = bound_;
    schedule.peak_bytes = best_run_.peak_bytes;
    schedule.resident_bytes = best_->resident_bytes();
    schedule.capacity = capacity_;
    schedule.contention = options_.contention;
    for (TaskId const id : best_run_.started) {
      Task const& task = best_->task(id);
      TaskRun const& run = best_run_.tasks[at(id)];
      schedule.launches.push_back({task.ops, task.resource, run.start_s, run.end_s, run.live_bytes});
      schedule.busy_s[static_cast<std::size_t>(task.resource)] += run.end_s - run.start_s;
    }
    schedule.exposed_s = exposed(schedule);
    schedule.planning_s = std::chrono::duration<double>(Clock::now() - began_).count();
    return schedule;
  }

  /// Length of the union of sending less computing.
  static double exposed(Schedule const& schedule) {
    std::vector<std::pair<double, std::array<int, 2>>> events;
    for (auto const& launch : schedule.launches) {
      if (launch.end_s <= launch.start_s || launch.resource == Resource::copy) continue;
      bool const computes = launch.resource == Resource::compute;
      std::array<int, 2> const begins = {computes ? 0 : 1, computes ? 1 : 0};
      events.push_back({launch.start_s, begins});
      events.push_back({launch.end_s, {-begins[0], -begins[1]}});
    }
    std::sort(events.begin(), events.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
    double total = 0;
    double since = 0;
    int sending = 0;
    int computing = 0;
    for (auto const& [time, change] : events) {
      if (sending > 0 && computing == 0) total += time - since;
      since = time;
      sending += change[0];
      computing += change[1];
    }
    return total;
  }

  ScheduleOptions const& options_;
  Clock::time_point began_;
  Problem unmerged_;
  std::vector<TaskId> serial_;
  std::int64_t serial_bytes_ = 0;
  std::int64_t capacity_ = 0;
  LowerBound bound_;
  struct Plan {
    std::unique_ptr<Problem> problem;
    Run run;
  };
  std::size_t attempts_ = 0;
  int repeats_ = 0;
  Choice best_choice_;
  std::set<std::tuple<std::vector<std::vector<OpId>>, SchedulePolicy, int, int>> tried_;
  std::unique_ptr<Problem> best_;
  Run best_run_;
  std::vector<Plan> near_;  ///< others that were hardly longer when they were found, or the best before
};

}  // namespace

std::string_view to_string(SchedulePolicy policy) noexcept {
  return kPolicyNames[static_cast<std::size_t>(policy)];
}

Schedule plan_schedule(OpGraph const& graph, CostModel const& model, ScheduleOptions const& options) {
  check_graph(graph);
  if (options.capacity && *options.capacity < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("plan_schedule: a capacity of {} bytes", *options.capacity));
  }
  if (!std::isfinite(options.contention) || options.contention < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("plan_schedule: a contention of {}", options.contention));
  }
  return Planner(graph, model, options).run();
}

std::int64_t serial_peak_bytes(OpGraph const& graph, CostModel const& model) {
  check_graph(graph);
  Problem const problem(graph, model);
  return serial_peak(problem, low_memory_order(problem));
}

}  // namespace weft
