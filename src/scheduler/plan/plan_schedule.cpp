#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory>
#include <random>
#include <string_view>
#include <utility>

#include "scheduler/plan/bounds.hpp"
#include "scheduler/plan/merge_collectives.hpp"
#include "scheduler/plan/policies.hpp"
#include "scheduler/plan/problem.hpp"
#include "scheduler/plan/run_tasks.hpp"
#include "scheduler/plan/serial_order.hpp"
#include "weft/error.hpp"
#include "weft/schedule.hpp"

namespace weft {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, kSchedulePolicies> kPolicyNames = {
    "weft", "blocking", "asap", "alap", "prefetch1", "prefetch2", "xla", "inductor", "random"};

constexpr std::int64_t kXlaCombiner = std::int64_t{30} << 20;
constexpr int kRandomOrders = 8;

std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

class Planner {
 public:
  Planner(OpGraph const& graph, CostModel const& model, ScheduleOptions const& options)
      : options_(options), began_(Clock::now()), unmerged_(graph, model), serial_(low_memory_order(unmerged_)) {
    std::int64_t const peak = serial_peak(unmerged_, serial_);
    capacity_ = options.capacity.value_or(peak);
    if (peak > capacity_) {
      throw Error(
          ErrorCode::out_of_memory,
          fmt::format("graph {}: no order of its operators was found that takes {} bytes or less; the best takes {}, "
                      "of which {} are there all the time",
                      graph.name, capacity_, peak, unmerged_.resident_bytes()));
    }
    serial_bytes_ = peak;
    bound_ = lower_bound(unmerged_, options.contention);
  }

  Schedule run() {
    switch (options_.policy) {
      case SchedulePolicy::weft: search(); break;
      case SchedulePolicy::blocking: blocking(); break;
      case SchedulePolicy::asap: asap(); break;
      case SchedulePolicy::alap: alap(); break;
      case SchedulePolicy::prefetch1: prefetch(1, 0); break;
      case SchedulePolicy::prefetch2: prefetch(2, 0); break;
      case SchedulePolicy::xla: xla(); break;
      case SchedulePolicy::inductor: prefetch(1, 0); break;
      case SchedulePolicy::random: random(); break;
    }
    return result();
  }

 private:
  struct Merging {
    std::int64_t bytes = 0;
    double share = 0.5;  ///< of the memory above the serial order's that merged launches may take
    double taper = 1;
  };

  /// Tries one way to merge and one to run. Merging looks at each launch's memory by itself; where that turns out to be
  /// too much for all of them, less is merged.
  template <typename Rules>
  void attempt(Merging merging, Rules const& rules_for) {
    auto const memory =
        serial_bytes_ + static_cast<std::int64_t>(merging.share * static_cast<double>(capacity_ - serial_bytes_));
    std::unique_ptr<Problem> problem;
    std::vector<TaskId> serial;
    while (true) {
      auto const merged =
          merge_collectives(unmerged_, serial_, {.bytes = merging.bytes, .memory = memory, .taper = merging.taper});
      problem = std::make_unique<Problem>(unmerged_.graph(), unmerged_.model(), merged.launches);
      serial = merged.launches.empty() ? serial_ : serial_order_by(merged.key, *problem);
      if (merged.launches.empty() || serial_peak(*problem, serial) <= capacity_) break;
      merging.bytes /= 2;
    }
    merged_something_ = problem->tasks().size() < unmerged_.tasks().size();
    RunRules rules = rules_for(*problem, serial);
    rules.serial = std::move(serial);
    if (rules.urgency.empty()) rules.urgency = urgency_by_order(rules.serial);
    rules.capacity = capacity_;
    rules.contention = options_.contention;
    Run run = run_tasks(*problem, rules);
    if (best_ && best_run_.makespan_s <= run.makespan_s) return;
    best_ = std::move(problem);
    best_run_ = std::move(run);
  }
  static RunRules in_order(Problem const& /*problem*/, std::vector<TaskId> const& /*serial*/) { return {}; }

  void blocking() {
    attempt({}, [](auto const&, auto const&) { return RunRules{.blocking = true}; });
  }
  void asap() { attempt({}, in_order); }
  void alap() {
    attempt({}, [](Problem const& problem, auto const& serial) {
      return RunRules{.gates = late_gates(problem, serial, 1)};
    });
  }
  void prefetch(int depth, std::int64_t bytes) {
    attempt({.bytes = bytes}, [&](Problem const& problem, auto const& serial) {
      return RunRules{.gates = prefetch_gates(problem, serial, depth)};
    });
  }
  void xla() {
    attempt({.bytes = kXlaCombiner, .share = 1}, [](Problem const& problem, auto const& serial) {
      return RunRules{.gates = late_gates(problem, serial, 1)};
    });
  }
  void random() {
    std::mt19937_64 random(options_.seed);
    for (int i = 0; i < kRandomOrders; ++i) {
      attempt({}, [&](Problem const& problem, auto const&) {
        std::vector<double> urgency(problem.tasks().size());
        for (double& each : urgency) each = static_cast<double>(random() >> 11);
        return RunRules{.urgency = std::move(urgency)};
      });
    }
  }

  [[nodiscard]] bool time_is_up() const { return Clock::now() - began_ > options_.time_limit; }
  [[nodiscard]] bool is_good() const { return best_ && best_run_.makespan_s <= bound_.best_s() * (1 + 1e-4); }

  void tell() const {
    if (options_.progress) options_.progress({Clock::now() - began_, best_run_.makespan_s, bound_.best_s()});
  }

  /// Bucket sizes by factors of two, from a small part of all that is sent up until they do harm; then finer about the
  /// best one.
  void search() {
    asap();
    std::int64_t most = 0;
    for (Task const& task : unmerged_.tasks()) {
      OpNode const& op = unmerged_.graph().ops[at(task.ops.front())];
      if (op.kind == OpKind::collective) most += op.collective.bytes;
    }
    Merging best;
    auto const consider = [&](Merging const& merging) {
      if (time_is_up() || is_good()) return;
      double const before = best_run_.makespan_s;
      attempt(merging, in_order);
      if (best_run_.makespan_s < before) best = merging;
      tell();
    };
    int worse = 0;
    for (double bytes = std::max(1.0, static_cast<double>(most) / 4096);
         bytes <= static_cast<double>(most) && worse < 2; bytes *= 2) {
      double const before = best_run_.makespan_s;
      consider({.bytes = static_cast<std::int64_t>(bytes)});
      if (best_run_.makespan_s < before) worse = 0;
      if (best_run_.makespan_s >= before && merged_something_) ++worse;
    }
    for (double const taper : {0.1, 0.3, 10.0}) consider({best.bytes, best.share, taper});
    for (double const factor : {0.7, 0.84, 1.19, 1.41, 2.0}) {
      consider({static_cast<std::int64_t>(static_cast<double>(best.bytes) * factor), best.share, best.taper});
    }
    for (double const share : {0.1, 0.25, 0.75, 0.9}) consider({best.bytes, share, best.taper});
    for (int depth = 1; depth <= 4 && !time_is_up() && !is_good(); ++depth) {
      prefetch(depth, 0);
      prefetch(depth, best.bytes);
      tell();
    }
    for (auto const rule : {&Planner::alap, &Planner::xla, &Planner::random}) {
      if (!is_good()) (this->*rule)();
    }
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
  bool merged_something_ = false;  ///< in the last attempt
  std::unique_ptr<Problem> best_;
  Run best_run_;
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
