#include "scheduler/plan/released_memory.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/max_flow.hpp"

namespace weft {

namespace {

constexpr double kAlways = std::numeric_limits<double>::infinity();
/// The l, m and n that are tried: seconds of gathering freed, or of others made ready, per second of computing or of
/// others sent.
constexpr std::array kFreedByComputed = {0.0, 0.3, 0.6, 0.7, 0.8, 0.9, 1.0};
constexpr std::array kFreedByOthers = {0.0, 0.1, 0.2, 0.3, 0.5};
constexpr std::array kReadyByComputed = {0.0, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5};
/// The most levels beside the last, and the factor from one level's end to the next.
constexpr std::size_t kLevels = 20;
constexpr double kLevelGrowth = 1.15;
/// Sums of the same seconds in another order may differ in the last bits.
constexpr double kLevelRounding = 1e-9;
/// The network counts in whole numbers: all seconds of others together are this many units.
constexpr double kUnits = 1e15;
constexpr double kMostWeight = 1e17;

/// Rounds down to a whole number.
std::int64_t whole(double weight) {
  return static_cast<std::int64_t>(std::min(weight, kMostWeight));
}

/// Finds the heaviest closure: a set of nodes that contains, with each node, all that this node wants.
class Closure {
 public:
  explicit Closure(std::size_t nodes) : weight_(nodes, 0), flow_(nodes + 2) {}

  void add(std::size_t node, std::int64_t weight) { weight_[node] += weight; }
  void wants(std::size_t node, std::size_t other) {
    flow_.add_edge(static_cast<std::int32_t>(node), static_cast<std::int32_t>(other), MaxFlow::kUnlimited);
  }
  /// To be called once.
  [[nodiscard]] std::int64_t heaviest() {
    auto const source = static_cast<std::int32_t>(weight_.size());
    std::int64_t most = 0;
    for (std::int32_t node = 0; node < source; ++node) {
      std::int64_t const weight = weight_[at(node)];
      if (weight > 0) flow_.add_edge(source, node, weight);
      most += std::max<std::int64_t>(0, weight);
    }
    for (std::int32_t node = 0; node < source; ++node) {
      if (weight_[at(node)] < 0) flow_.add_edge(node, source + 1, std::min(most, -weight_[at(node)]));
    }
    return most > 0 ? most - flow_.run(source, source + 1) : 0;
  }

 private:
  std::vector<std::int64_t> weight_;
  MaxFlow flow_;
};

}  // namespace

ReleasedMemory::ReleasedMemory(Problem const& problem, LinkTerms const& link, std::vector<Side> const& side)
    : problem_(problem),
      link_(link),
      side_(side),
      gathers_(side.size(), false),
      rate_(kAlways),
      can_be_freed_(problem.storages().size(), false),
      storage_needs_s_(problem.storages().size(), 0),
      task_needs_s_(side.size(), 0),
      seen_(side.size(), 0) {
  sort_sends();
  sort_storages();
}

bool ReleasedMemory::is_other(TaskId task) const {
  return is_behind(task) && link_.sends[at(task)] && !gathers_[at(task)];
}

/// Seconds that the task computes behind the cut for certain: a task that does not need the cut may have been computed
/// before.
double ReleasedMemory::computes(TaskId task) const {
  bool const later = side_[at(task)] == Side::after && problem_.task(task).resource == Resource::compute;
  return later ? problem_.task(task).seconds : 0;
}

void ReleasedMemory::sort_sends() {
  using Class = std::pair<CollectiveKind, GroupId>;
  std::array<std::set<Class>, 2> classes;
  for (std::size_t i = 0; i < side_.size(); ++i) {
    auto const task = static_cast<TaskId>(i);
    if (!is_behind(task) || !link_.sends[i]) continue;
    double const body = link_.bodies[i];
    std::int64_t const bytes = side_[i] == Side::neither && body > 0 ? brings(problem_, task, side_) : 0;
    gathers_[i] = bytes > 0;
    auto const& collective = problem_.graph().ops[at(problem_.task(task).ops.front())].collective;
    classes[gathers_[i] ? 0 : 1].emplace(collective.kind, collective.group);
    (gathers_[i] ? gathers_s_ : others_s_) += body;
    if (gathers_[i]) rate_ = std::min(rate_, static_cast<double>(bytes) / body);
    if (!gathers_[i] && side_[i] == Side::neither) others_early_s_ += body;
  }
  mixes_ =
      std::any_of(classes[0].begin(), classes[0].end(), [&](Class const& one) { return classes[1].contains(one); });
}

void ReleasedMemory::sort_storages() {
  for (std::size_t i = 0; i < can_be_freed_.size(); ++i) {
    Storage const& storage = problem_.storages()[i];
    bool const from_before = storage.first == kNone || !is_behind(storage.first);
    bool const used_later =
        std::any_of(storage.users.begin(), storage.users.end(), [&](TaskId user) { return is_behind(user); });
    if (from_before && (storage.kept || used_later)) live_bytes_ += storage.bytes;
    can_be_freed_[i] = !storage.kept && (!from_before || used_later);
  }
}

void ReleasedMemory::find() {
  find_needs();
  for (double const end : level_ends()) levels_.push_back(level(end));
}

void ReleasedMemory::find_needs() {
  for (std::size_t i = 0; i < can_be_freed_.size(); ++i) {
    if (can_be_freed_[i]) storage_needs_s_[i] = needed_for(problem_.storages()[i].users);
  }
  for (std::size_t i = 0; i < side_.size(); ++i) {
    auto const task = static_cast<TaskId>(i);
    if (is_other(task)) task_needs_s_[i] = needed_for({task});
  }
}

double ReleasedMemory::needed_for(std::vector<TaskId> const& tasks) {
  ++looks_;
  double seconds = 0;
  std::vector<TaskId> open;
  auto const look_at = [&](TaskId task) {
    if (!is_behind(task) || std::exchange(seen_[at(task)], looks_) == looks_) return;
    seconds += computes(task);
    open.push_back(task);
  };
  for (TaskId const task : tasks) look_at(task);
  while (!open.empty()) {
    TaskId const task = open.back();
    open.pop_back();
    for (TaskId const earlier : problem_.before(task)) look_at(earlier);
  }
  return seconds;
}

std::vector<double> ReleasedMemory::level_ends() const {
  std::vector<double> needs;
  for (std::size_t i = 0; i < can_be_freed_.size(); ++i) {
    if (can_be_freed_[i]) needs.push_back(storage_needs_s_[i]);
  }
  for (std::size_t i = 0; i < side_.size(); ++i) {
    if (is_other(static_cast<TaskId>(i))) needs.push_back(task_needs_s_[i]);
  }
  std::sort(needs.begin(), needs.end());
  std::vector<double> ends;
  for (double const need : needs) {
    // Levels shorter than a tenth of a launch's latency would say nothing.
    double const least = ends.empty() ? link_.latency_s / 10 : ends.back() * kLevelGrowth;
    if (need > least && ends.size() < kLevels) ends.push_back(need);
  }
  ends.push_back(kAlways);
  return ends;
}

ReleasedMemory::Level ReleasedMemory::level(double below_s) const {
  Level level{.below_s = below_s};
  for (double const others : kFreedByOthers) {
    for (double const computed : kFreedByComputed) {
      level.freed.push_back({most_freed(below_s, computed, others), computed, others});
    }
  }
  for (double const computed : kReadyByComputed) level.ready.push_back({most_ready(below_s, computed), computed});
  return level;
}

/// The network's nodes are the tasks, then the storages.
double ReleasedMemory::most_freed(double below_s, double by_computed, double by_others) const {
  std::size_t const tasks = side_.size();
  Closure closure(tasks + can_be_freed_.size());
  for (std::size_t i = 0; i < tasks; ++i) {
    auto const task = static_cast<TaskId>(i);
    if (!is_behind(task)) continue;
    double const costs = by_computed * computes(task) + (is_other(task) ? by_others * link_.bodies[i] : 0);
    closure.add(i, -whole(costs * rate_));
    for (TaskId const earlier : problem_.before(task)) {
      if (is_behind(earlier)) closure.wants(i, at(earlier));
    }
  }
  for (std::size_t i = 0; i < can_be_freed_.size(); ++i) {
    Storage const& storage = problem_.storages()[i];
    bool const is_made = storage.first != kNone && is_behind(storage.first);
    if (is_made && !gathers_[at(storage.first)]) closure.add(at(storage.first), -storage.bytes);
    if (!can_be_freed_[i] || storage_needs_s_[i] >= below_s) continue;
    closure.add(tasks + i, storage.bytes);
    for (TaskId const user : storage.users) {
      if (is_behind(user)) closure.wants(tasks + i, at(user));
    }
  }
  return static_cast<double>(closure.heaviest()) / rate_;
}

double ReleasedMemory::most_ready(double below_s, double by_computed) const {
  if (others_s_ <= 0) return 0;
  Closure closure(side_.size());
  double const units = kUnits / others_s_;
  for (std::size_t i = 0; i < side_.size(); ++i) {
    auto const task = static_cast<TaskId>(i);
    if (!is_behind(task)) continue;
    closure.add(i, -whole(by_computed * computes(task) * units));
    if (is_other(task) && task_needs_s_[i] < below_s) {
      closure.add(i, whole(link_.bodies[i] * units) + 1);
    }
    for (TaskId const earlier : problem_.before(task)) {
      if (is_behind(earlier)) closure.wants(i, at(earlier));
    }
  }
  return static_cast<double>(closure.heaviest()) / units;
}

ReleasedMemory::Level const& ReleasedMemory::level_of(double computed_s) const {
  auto const level = std::find_if(levels_.begin(), levels_.end(),
                                  [&](Level const& each) { return computed_s < each.below_s * (1 - kLevelRounding); });
  return level == levels_.end() ? levels_.back() : *level;
}

double ReleasedMemory::freed_s(double computed_s, double others_sent_s) const {
  double least = kAlways;
  for (Freed const& each : level_of(computed_s).freed) {
    least = std::min(least, each.constant + each.by_computed * computed_s + each.by_others * others_sent_s);
  }
  return least;
}

double ReleasedMemory::ready_s(double computed_s) const {
  double least = kAlways;
  for (Ready const& each : level_of(computed_s).ready) {
    least = std::min(least, each.constant + each.by_computed * computed_s);
  }
  return least;
}

std::vector<double> ReleasedMemory::steps() const {
  std::vector<double> steps;
  for (Level const& each : levels_) {
    if (each.below_s < kAlways) steps.push_back(each.below_s);
  }
  return steps;
}

}  // namespace weft
