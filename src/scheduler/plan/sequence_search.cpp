#include "scheduler/plan/sequence_search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/compute_orders.hpp"
#include "scheduler/plan/launch_sequence.hpp"
#include "scheduler/plan/send_chain.hpp"

namespace weft {

namespace {

constexpr ChainLimits kCoarse{.gathers = 120, .reductions = 60};
/// How many of the longest idle times of the link are looked at, and how many reductions are tried first at each.
constexpr std::size_t kIdlePlaces = 2;
constexpr std::size_t kPulled = 8;
/// How many of the reductions that come next there are tried later, and behind how many others.
constexpr std::size_t kPushed = 3;
constexpr std::array<std::size_t, 3> kBehind = {3, 6, 18};
/// Moving a reduction back has to gain at least this much: what is improved from there on may otherwise end longer.
constexpr double kWorthPushing = 0.9995;

/// A sequence, and the order of computing it was found for.
struct Found {
  std::vector<TaskId> order{};
  SendChain chain{};
  LaunchSequence sequence{};
};

class SequenceSearch {
 public:
  SequenceSearch(Problem const& problem, SequenceSearchRules const& rules) : problem_(problem), rules_(rules) {}

  std::optional<SequencePlan> run(std::vector<TaskId> const& order) {
    // The coarse search first: what the fine search looks for then has to be shorter, which takes less time. Where the
    // fine search brings nothing, all others are coarse, too.
    bool const coarse = attempt(order, kCoarse);
    ChainLimits const limits = attempt(order, {}) || !coarse ? ChainLimits{} : kCoarse;
    attempt(gradients_first(problem_, order), limits);
    while (found_ && vary(limits)) {
    }
    if (!found_) return std::nullopt;
    return SequencePlan{merged(), found_->sequence.seconds};
  }

 private:
  /// Looks for a sequence for `order` and keeps it if it takes less than `share` of the best so far; returns whether it
  /// did.
  bool attempt(std::vector<TaskId> order, ChainLimits const& limits, double share = 1) {
    if (orders_++ >= rules_.most_orders || serial_peak(problem_, order) > rules_.capacity) return false;
    auto chain = send_chain(problem_, order, limits);
    if (!chain) return false;
    auto sequence = best_launches(*chain, {.capacity = rules_.capacity,
                                           .contention = rules_.contention,
                                           .below_s = found_ ? share * found_->sequence.seconds : rules_.below_s});
    if (!sequence) return false;
    found_ = {std::move(order), *std::move(chain), *std::move(sequence)};
    return true;
  }

  /// Tries other orders, and returns whether they brought anything: those in which what leads to a reduction comes
  /// first, or, where that brings nothing, later.
  bool vary(ChainLimits const& limits) { return pull(limits) || push(limits); }

  bool pull(ChainLimits const& limits) {
    Found const from = *found_;
    bool better = false;
    for (std::size_t const begin : idle_places(from)) {
      auto const next = reductions_behind(from.order, begin);
      for (std::size_t i = 0; i < std::min(kPulled, next.size()); ++i) {
        better = attempt(pulled_forward(problem_, from.order, begin, from.order[next[i]]), limits) || better;
      }
    }
    return better;
  }

  bool push(ChainLimits const& limits) {
    Found const from = *found_;
    bool better = false;
    for (std::size_t const begin : idle_places(from)) {
      auto const next = reductions_behind(from.order, begin);
      for (std::size_t i = 0; i < std::min(kPushed, next.size()); ++i) {
        for (std::size_t const behind : kBehind) {
          if (i + behind >= next.size()) continue;
          TaskId const late = from.order[next[i]];
          better = attempt(pushed_back(problem_, from.order, late, next[i + behind]), limits, kWorthPushing) || better;
        }
      }
    }
    return better;
  }

  /// The places of the next reductions from `begin` on.
  [[nodiscard]] std::vector<std::size_t> reductions_behind(std::vector<TaskId> const& order, std::size_t begin) const {
    std::vector<std::size_t> places;
    std::size_t const most = std::max(kPulled, kPushed + kBehind.back());
    for (std::size_t i = begin; i < order.size() && places.size() < most; ++i) {
      if (is_reduced(order[i])) places.push_back(i);
    }
    return places;
  }

  /// Whether the task is sent for updates alone.
  [[nodiscard]] bool is_reduced(TaskId task) const {
    auto const later = problem_.after(task);
    return is_link(problem_.task(task).resource) && std::all_of(later.begin(), later.end(), [&](TaskId each) {
             return problem_.graph().ops[at(problem_.task(each).ops.front())].kind == OpKind::update;
           });
  }

  /// The places in the order of what was computed next when the link fell idle, the longest idle time first.
  [[nodiscard]] static std::vector<std::size_t> idle_places(Found const& found) {
    std::vector<SequenceLaunch> idle;
    for (SequenceLaunch const& launch : found.sequence.launches) {
      if (launch.idle_s > 0 && launch.computed < found.chain.segments.size()) idle.push_back(launch);
    }
    std::stable_sort(idle.begin(), idle.end(), [](auto const& a, auto const& b) { return a.idle_s > b.idle_s; });
    idle.resize(std::min(idle.size(), kIdlePlaces));
    std::vector<std::size_t> places;
    for (SequenceLaunch const& launch : idle) {
      TaskId const next = found.chain.segments[launch.computed].tasks.back();
      auto const place = std::find(found.order.begin(), found.order.end(), next);
      places.push_back(static_cast<std::size_t>(place - found.order.begin()));
    }
    return places;
  }

  /// Sorted by start; of tasks that start at the same time launches come first.
  using Key = std::tuple<double, int>;

  [[nodiscard]] Merged merged() const {
    std::vector<Key> keys(found_->order.size(), kUnset);
    Merged merged;
    set_segments(keys);
    for (SequenceLaunch const& launch : found_->sequence.launches) {
      auto const& units = launch.gathers ? found_->chain.gathers : found_->chain.reductions;
      std::vector<OpId> ops;
      for (std::size_t i = launch.begin; i < launch.end; ++i) {
        for (TaskId const task : units[i].tasks) {
          keys[at(task)] = {launch.start_s, 0};
          ops.push_back(problem_.task(task).ops.front());
        }
      }
      if (ops.size() > 1) merged.launches.push_back(std::move(ops));
    }
    set_others(keys);
    auto order = found_->order;
    std::stable_sort(order.begin(), order.end(), [&](TaskId a, TaskId b) { return keys[at(a)] < keys[at(b)]; });
    merged.key.resize(order.size());
    merged.earlier.assign(order.size(), false);
    for (std::size_t i = 0; i < order.size(); ++i) {
      merged.key[at(problem_.task(order[i]).ops.front())] = static_cast<double>(i);
    }
    return merged;
  }

  void set_segments(std::vector<Key>& keys) const {
    for (std::size_t i = 0; i < found_->chain.segments.size(); ++i) {
      for (TaskId const task : found_->chain.segments[i].tasks) keys[at(task)] = {found_->sequence.starts[i], 1};
    }
  }

  /// What the chain leaves out (updates) runs as soon as it can.
  void set_others(std::vector<Key>& keys) const {
    std::vector<double> ends(keys.size(), 0);
    for (SequenceLaunch const& launch : found_->sequence.launches) {
      auto const& units = launch.gathers ? found_->chain.gathers : found_->chain.reductions;
      for (std::size_t i = launch.begin; i < launch.end; ++i) {
        for (TaskId const task : units[i].tasks) ends[at(task)] = launch.end_s;
      }
    }
    for (TaskId const task : found_->order) {
      if (keys[at(task)] != kUnset) continue;
      Key latest{0, 1};
      for (TaskId const earlier : problem_.before(task)) {
        latest = std::max({latest, keys[at(earlier)], Key{ends[at(earlier)], 1}});
      }
      keys[at(task)] = latest;
    }
  }

  static constexpr Key kUnset{std::numeric_limits<double>::infinity(), 2};

  Problem const& problem_;
  SequenceSearchRules const& rules_;
  std::optional<Found> found_{};
  std::size_t orders_ = 0;
};

}  // namespace

std::optional<SequencePlan> search_sequence(Problem const& problem, std::vector<TaskId> const& order,
                                            SequenceSearchRules const& rules) {
  return SequenceSearch(problem, rules).run(order);
}

}  // namespace weft
