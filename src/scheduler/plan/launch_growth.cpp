#include "scheduler/plan/launch_growth.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/exposed_sending.hpp"

namespace weft {

namespace {

/// Every number of launches up to this one is looked at; beyond it only one per doubling.
constexpr std::size_t kEachLaunch = 32;
constexpr int kHalvings = 50;
/// Sums of the same seconds in another order may differ in the last bits.
constexpr double kRounding = 1e-12;
constexpr TaskId kSeveral = -2;

/// By task: the one collective that it needs (from_end: that needs it); kNone where there is none, kSeveral where there
/// are several.
std::vector<TaskId> only_collective(Problem const& problem, std::vector<bool> const& sends, bool from_end) {
  auto const& order = problem.order();
  std::vector<TaskId> only(order.size(), kNone);
  auto const add = [](TaskId& to, TaskId one) {
    if (one == kNone || to == one) return;
    to = to == kNone ? one : kSeveral;
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    TaskId const task = from_end ? order[order.size() - 1 - i] : order[i];
    for (TaskId const next : from_end ? problem.before(task) : problem.after(task)) {
      if (sends[at(task)]) add(only[at(next)], task);
      add(only[at(next)], only[at(task)]);
    }
  }
  return only;
}

}  // namespace

LinkTerms LinkTerms::of(Problem const& problem, Resource link, double contention) {
  auto const tasks = problem.tasks().size();
  LinkTerms terms{.bodies = std::vector<double>(tasks, 0),
                  .sends = std::vector<bool>(tasks, false),
                  .latency_s = std::numeric_limits<double>::infinity(),
                  .contention = contention};
  for (std::size_t i = 0; i < tasks; ++i) {
    Task const& task = problem.tasks()[i];
    if (task.resource != link || task.seconds <= 0) continue;
    terms.sends[i] = true;
    ++terms.tasks;
    terms.bodies[i] = task.seconds - task.latency_s;
    terms.latency_s = std::min(terms.latency_s, task.latency_s);
  }
  return terms;
}

LaunchGrowth::LaunchGrowth(Problem const& problem, LinkTerms const& link, std::vector<TaskId> const& path,
                           bool from_end)
    : link_(link) {
  // The bodies hold no latency, and none is to be added.
  BoundBodies const bodies{.seconds = link.bodies, .launches = std::vector<bool>(link.bodies.size(), true)};
  needed_ = sent_beside(problem, bodies, path, from_end);
  auto const only = only_collective(problem, link.sends, from_end);
  std::vector<std::pair<double, double>> shared;
  std::vector<double> beside(only.size(), 0);  // by collective: seconds computed by tasks that need no other
  for (std::size_t i = 0; i < only.size(); ++i) {
    Task const& task = problem.tasks()[i];
    if (task.resource != Resource::compute) continue;
    if (only[i] == kNone) free_s_ += task.seconds;
    if (only[i] == kSeveral) shared.emplace_back(needed_[i], task.seconds);
    if (only[i] >= 0) beside[at(only[i])] += task.seconds;
  }
  sum_shared(std::move(shared));
  sum_single(problem, beside);
}

void LaunchGrowth::sum_shared(std::vector<std::pair<double, double>> shared) {
  std::sort(shared.begin(), shared.end());
  for (auto const& [sent, seconds] : shared) {
    shared_sent_.push_back(sent);
    shared_computed_.push_back(shared_computed_.back() + seconds);
  }
}

void LaunchGrowth::sum_single(Problem const& problem, std::vector<double> const& beside) {
  std::vector<TaskId> single;
  for (TaskId const task : problem.order()) {
    if (beside[at(task)] > 0) single.push_back(task);
  }
  std::stable_sort(single.begin(), single.end(), [&](TaskId a, TaskId b) {
    return beside[at(a)] * link_.bodies[at(b)] > beside[at(b)] * link_.bodies[at(a)];
  });
  for (TaskId const task : single) {
    single_sent_.push_back(single_sent_.back() + link_.bodies[at(task)]);
    single_computed_.push_back(single_computed_.back() + beside[at(task)]);
  }
}

double LaunchGrowth::computed_with(double sent) const {
  double const most = sent * (1 + kRounding);
  auto const shared = std::upper_bound(shared_sent_.begin(), shared_sent_.end(), most) - shared_sent_.begin();
  auto const next = std::upper_bound(single_sent_.begin(), single_sent_.end(), most);
  auto const whole = at(static_cast<std::int32_t>(next - single_sent_.begin() - 1));
  double computed = free_s_ + shared_computed_[at(static_cast<std::int32_t>(shared))] + single_computed_[whole];
  if (next != single_sent_.end()) {
    double const part = (sent - single_sent_[whole]) / (*next - single_sent_[whole]);
    computed += std::max(0.0, part) * (single_computed_[whole + 1] - single_computed_[whole]);
  }
  return computed;
}

/// Each launch is as large as it can be.
bool LaunchGrowth::can_send(double seconds, std::size_t most_launches, double idle_s) const {
  double sent = 0;
  for (std::size_t launch = 1; sent < seconds * (1 - kRounding); ++launch) {
    double const then =
        (1 + link_.contention) * (idle_s + computed_with(sent)) - static_cast<double>(launch) * link_.latency_s;
    if (launch > most_launches || then <= sent) return false;
    sent = then;
  }
  return true;
}

/// Returns slightly too little rather than too much, so that it stays a lower bound.
double LaunchGrowth::least_idle(double seconds, std::size_t most_launches) const {
  if (can_send(seconds, most_launches, 0)) return 0;
  double little = 0;
  double enough = seconds + link_.latency_s;  // one launch sends all
  for (int i = 0; i < kHalvings; ++i) {
    double const middle = (little + enough) / 2;
    (can_send(seconds, most_launches, middle) ? enough : little) = middle;
  }
  return little;
}

std::vector<LaunchChoice> LaunchGrowth::choices(double seconds) const {
  if (seconds <= 0) return {{0, 0}};
  std::vector<LaunchChoice> choices;
  for (std::size_t least = 1; least <= link_.tasks;) {
    std::size_t const most = least <= kEachLaunch ? least : 2 * (least - 1);
    choices.push_back({static_cast<double>(least), least_idle(seconds, most)});
    if (choices.back().idle_s <= 0) break;
    least = most + 1;
  }
  return choices;
}

}  // namespace weft
