#include "scheduler/order/memory_order.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/exact_order.hpp"
#include "scheduler/order/greedy_order.hpp"
#include "scheduler/order/least_live.hpp"
#include "scheduler/order/segments.hpp"
#include "scheduler/order/serial_order.hpp"

namespace weft {

namespace {

using Order = std::vector<TaskId>;

/// The limits count work, not seconds, so that every machine finds the same order.
constexpr int kMostRounds = 200;         ///< of moving tasks around the peak
constexpr int kMostCuts = 64;            ///< minimum cuts for the final order's bound
constexpr std::size_t kWindow = 20;      ///< tasks around the peak that are ordered exactly
constexpr std::size_t kStates = 20'000;  ///< sets that ordering a window may look at

std::int64_t most_in(std::vector<std::int64_t> const& live, Segment segment) {
  auto const begin = live.begin() + static_cast<std::ptrdiff_t>(segment.begin);
  return *std::max_element(begin, live.begin() + static_cast<std::ptrdiff_t>(segment.end));
}

/// `order` with the tasks of a segment in their best order, where that can be found.
void order_exactly(Problem const& problem, Segment segment, std::size_t most_states, Order& order) {
  std::vector<bool> done(order.size(), false);
  for (std::size_t i = 0; i < segment.begin; ++i) done[at(order[i])] = true;
  auto const tasks = std::span(order).subspan(segment.begin, segment.end - segment.begin);
  if (auto const exact = exact_order_of(problem, tasks, done, most_states)) {
    std::copy(exact->begin(), exact->end(), tasks.begin());
  }
}

/// Takes each segment from the order that has the lowest peak there.
Order best_of(Problem const& problem, std::vector<Order> const& orders) {
  std::vector<std::vector<std::int64_t>> live;
  for (auto const& order : orders) live.push_back(serial_live(problem, order));
  Order best;
  best.reserve(problem.tasks().size());
  auto const segments = segments_of(problem);
  for (Segment const segment : segments) {
    std::size_t least = 0;
    for (std::size_t i = 1; i < orders.size(); ++i) {
      if (most_in(live[i], segment) < most_in(live[least], segment)) least = i;
    }
    auto const from = orders[least].begin();
    best.insert(best.end(), from + static_cast<std::ptrdiff_t>(segment.begin),
                from + static_cast<std::ptrdiff_t>(segment.end));
  }
  for (Segment const segment : segments) {
    std::size_t const tasks = segment.end - segment.begin;
    if (tasks > 1 && tasks <= kMostExactTasks) order_exactly(problem, segment, 2'000'000, best);
  }
  return best;
}

/// Moves tasks around the peak until nothing that is tried lowers it.
class Refinement {
 public:
  Refinement(Problem const& problem, Order order) : problem_(problem), order_(std::move(order)) { measure(); }

  MemoryOrder run() {
    for (int round = 0; round < kMostRounds; ++round) {
      auto const top = std::max_element(live_.begin(), live_.end());
      auto const place = static_cast<std::size_t>(top - live_.begin());
      LeastLive const least = least_live(problem_, order_[place]);
      bound_ = std::max(bound_, least.bytes);
      if (bound_ >= peak_ || !(take_cut(place, least) || take_windows(place))) break;
    }
    raise_bound();
    return {.order = std::move(order_), .peak = peak_, .bound = bound_};
  }

 private:
  void measure() {
    live_ = serial_live(problem_, order_);
    peak_ = live_.empty() ? problem_.resident_bytes() : *std::max_element(live_.begin(), live_.end());
    peaks_ = std::count(live_.begin(), live_.end(), peak_);
  }

  /// Takes `order` where it has a lower peak, or reaches the same peak less often.
  bool take(Order order) {
    auto const live = serial_live(problem_, order);
    auto const peak = *std::max_element(live.begin(), live.end());
    if (peak > peak_ || (peak == peak_ && std::count(live.begin(), live.end(), peak) >= peaks_)) return false;
    order_ = std::move(order);
    measure();
    return true;
  }

  /// What least_live() wants to have run before the peak's task is moved before it, in the order that it had, and all
  /// else after it. As live bytes are submodular, no task that stays on its side takes more than it did.
  bool take_cut(std::size_t place, LeastLive const& least) {
    TaskId const top = order_[place];
    Order moved;
    moved.reserve(order_.size());
    for (TaskId const task : order_) {
      if (least.ran[at(task)]) moved.push_back(task);
    }
    moved.push_back(top);
    for (TaskId const task : order_) {
      if (!least.ran[at(task)] && task != top) moved.push_back(task);
    }
    return take(just_in_time(problem_, moved, peak_ - 1)) || take(std::move(moved));
  }

  /// Orders windows around the peak exactly: at its beginning, in its middle and at its end.
  bool take_windows(std::size_t place) {
    for (std::size_t const before : {kWindow / 2, kWindow - 2, std::size_t{1}}) {
      Segment const window{place - std::min(place, before), std::min(order_.size(), place + kWindow - before)};
      Order changed = order_;
      order_exactly(problem_, window, kStates, changed);
      if (take(std::move(changed))) return true;
    }
    return false;
  }

  /// A bound: every order takes at least what any of its tasks takes at the least. Looks at the tasks with the most
  /// live bytes here, as those are likely to give the highest bound.
  void raise_bound() {
    bound_ = std::max(bound_, serial_bound(problem_));
    std::vector<std::size_t> places(order_.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    std::stable_sort(places.begin(), places.end(), [&](auto a, auto b) { return live_[a] > live_[b]; });
    for (std::size_t i = 0; i < places.size() && i < kMostCuts && live_[places[i]] > bound_; ++i) {
      bound_ = std::max(bound_, least_live(problem_, order_[places[i]]).bytes);
    }
  }

  Problem const& problem_;
  Order order_;
  std::vector<std::int64_t> live_;
  std::int64_t peak_ = 0;
  std::ptrdiff_t peaks_ = 0;
  std::int64_t bound_ = 0;
};

}  // namespace

MemoryOrder memory_order(Problem const& problem) {
  if (auto exact = exact_order(problem)) {
    std::int64_t const peak = serial_peak(problem, *exact);
    return {.order = *std::move(exact), .peak = peak, .bound = peak};
  }
  std::vector<Order> orders{problem.order(), as_soon_as_possible(problem), depth_first(problem), greedy_order(problem)};
  std::int64_t least = serial_peak(problem, low_memory_order(problem));
  for (std::size_t i = 0; i < 4; ++i) orders.push_back(just_in_time(problem, orders[i], least - 1));
  orders.push_back(low_memory_order(problem));
  return Refinement(problem, best_of(problem, orders)).run();
}

}  // namespace weft
