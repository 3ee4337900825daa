#include "scheduler/plan/send_chain.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

/// The largest share of all sending that a chain may leave out.
constexpr double kMostAside = 0.1;

enum class ChainRole : std::uint8_t { segment, gather, reduction, aside };

class ChainMaker {
 public:
  ChainMaker(Problem const& problem, std::vector<TaskId> const& order)
      : problem_(problem), order_(order), role_(order.size(), ChainRole::aside), place_(order.size(), 0) {}

  std::optional<SendChain> make(ChainLimits const& limits) {
    find_computing();
    if (!find_sending()) return std::nullopt;
    place_computing();
    if (computed_.empty()) return std::nullopt;
    make_units(chain_.gathers, ChainRole::gather, limits.gathers);
    make_units(chain_.reductions, ChainRole::reduction, limits.reductions);
    sum_units();
    make_segments();
    count_memory();
    return std::move(chain_);
  }

 private:
  using Class = std::tuple<Resource, CollectiveKind, GroupId, bool>;

  [[nodiscard]] OpNode const& node(TaskId task) const {
    return problem_.graph().ops[at(problem_.task(task).ops.front())];
  }
  [[nodiscard]] bool sends(TaskId task) const { return is_link(problem_.task(task).resource); }
  [[nodiscard]] bool is(TaskId task, ChainRole role) const { return role_[at(task)] == role; }
  [[nodiscard]] double body(TaskId task) const { return problem_.task(task).seconds - problem_.task(task).latency_s; }

  template <typename Neighbours, typename Which>
  [[nodiscard]] static bool any(Neighbours const& neighbours, Which const& which) {
    return std::any_of(neighbours.begin(), neighbours.end(), which);
  }

  [[nodiscard]] bool only_for_updates(TaskId task) const {
    return !any(problem_.after(task), [&](TaskId later) { return node(later).kind != OpKind::update; });
  }

  /// Finds the computing: all that waits for nothing that is sent for updates only.
  void find_computing() {
    std::vector<bool> late(order_.size(), false);
    for (TaskId const task : order_) {
      late[at(task)] = any(problem_.before(task), [&](TaskId earlier) {
        return late[at(earlier)] || (sends(earlier) && only_for_updates(earlier));
      });
      if (!sends(task) && !late[at(task)] && node(task).kind != OpKind::update) role_[at(task)] = ChainRole::segment;
    }
  }

  /// The kind and group of which most is gathered, and those of which most is reduced.
  bool find_sending() {
    std::array<std::map<Class, double>, 2> seconds;
    double total = 0;
    auto const gathers = [&](TaskId task) {
      return any(problem_.after(task), [&](TaskId later) { return is(later, ChainRole::segment); });
    };
    auto const class_of = [&](TaskId task) -> Class {
      auto const& collective = node(task).collective;
      return {problem_.task(task).resource, collective.kind, collective.group, node(task).seconds.has_value()};
    };
    for (TaskId const task : order_) {
      if (!sends(task)) continue;
      total += problem_.task(task).seconds;
      seconds[gathers(task) ? 0 : 1][class_of(task)] += problem_.task(task).seconds;
    }
    double known = 0;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      auto const most = std::max_element(seconds[i].begin(), seconds[i].end(),
                                         [](auto const& a, auto const& b) { return a.second < b.second; });
      if (most == seconds[i].end()) continue;
      known += most->second;
      for (TaskId const task : order_) {
        if (!sends(task) || gathers(task) != (i == 0) || class_of(task) != most->first) continue;
        role_[at(task)] = i == 0 ? ChainRole::gather : ChainRole::reduction;
      }
    }
    return total > 0 && known >= (1 - kMostAside) * total;
  }

  void place_computing() {
    for (TaskId const task : order_) {
      if (!is(task, ChainRole::segment)) continue;
      place_[at(task)] = computed_.size();
      computed_.push_back(task);
    }
  }

  [[nodiscard]] std::size_t first_use(TaskId task) const {
    std::size_t first = computed_.size();
    for (TaskId const later : problem_.after(task)) {
      if (is(later, ChainRole::segment)) first = std::min(first, place_[at(later)]);
    }
    return first;
  }

  /// The first place behind all that the task waits for.
  [[nodiscard]] std::size_t ready(TaskId task) const {
    std::size_t last = 0;
    for (TaskId const earlier : problem_.before(task)) {
      if (is(earlier, ChainRole::segment)) last = std::max(last, place_[at(earlier)] + 1);
    }
    return last;
  }

  [[nodiscard]] std::size_t behind_last_user(Storage const& storage) const {
    std::size_t last = 0;
    for (TaskId const user : storage.users) {
      if (is(user, ChainRole::segment)) last = std::max(last, place_[at(user)] + 1);
    }
    return last;
  }

  void make_units(std::vector<ChainUnit>& units, ChainRole role, std::size_t most) {
    std::vector<std::pair<std::size_t, TaskId>> tasks;
    double total = 0;
    for (TaskId const task : order_) {
      if (!is(task, role)) continue;
      tasks.emplace_back(role == ChainRole::gather ? first_use(task) : ready(task), task);
      total += body(task);
    }
    std::stable_sort(tasks.begin(), tasks.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
    double const least = total / static_cast<double>(std::max<std::size_t>(1, most));
    for (auto const& [place, task] : tasks) {
      if (units.empty() || units.back().seconds >= least) units.emplace_back();
      ChainUnit& unit = units.back();
      unit.tasks.push_back(task);
      unit.seconds += body(task);
      unit.ready = std::max(unit.ready, ready(task));  // a place in computed_ for now; segments are made later
    }
  }

  void sum_units() {
    auto const sum = [](std::vector<ChainUnit> const& units) {
      std::vector<double> sums{0};
      for (ChainUnit const& unit : units) sums.push_back(sums.back() + unit.seconds);
      return sums;
    };
    auto const latency = [&](std::vector<ChainUnit> const& units) {
      double most = 0;
      for (ChainUnit const& unit : units) {
        for (TaskId const task : unit.tasks) most = std::max(most, problem_.task(task).latency_s);
      }
      return most;
    };
    chain_.gather_s = sum(chain_.gathers);
    chain_.reduction_s = sum(chain_.reductions);
    chain_.gather_latency_s = latency(chain_.gathers);
    chain_.reduction_latency_s = latency(chain_.reductions);
  }

  [[nodiscard]] std::size_t unit_first_use(ChainUnit const& unit) const {
    return first_use(unit.tasks.front());  // tasks are sorted by it
  }

  /// The place behind the last use of what any task of the unit makes.
  [[nodiscard]] std::size_t behind_last_use(ChainUnit const& unit) const {
    std::size_t last = 0;
    for (TaskId const task : unit.tasks) {
      for (auto const id : problem_.uses(task)) {
        Storage const& storage = problem_.storages()[at(id)];
        if (storage.first == task) last = std::max(last, behind_last_user(storage));
      }
    }
    return last;
  }

  void make_segments() {
    std::vector<bool> cut(computed_.size() + 1, false);
    for (ChainUnit const& unit : chain_.gathers) {
      cut[unit_first_use(unit)] = true;
      cut[behind_last_use(unit)] = true;
      cut[unit.ready] = true;
    }
    for (ChainUnit const& unit : chain_.reductions) cut[unit.ready] = true;
    segment_of_.assign(computed_.size() + 1, 0);
    for (std::size_t i = 0; i < computed_.size(); ++i) {
      if (i == 0 || cut[i]) chain_.segments.emplace_back();
      ChainSegment& segment = chain_.segments.back();
      segment_of_[i] = chain_.segments.size() - 1;
      segment.tasks.push_back(computed_[i]);
      segment.seconds += problem_.task(computed_[i]).seconds;
    }
    segment_of_[computed_.size()] = chain_.segments.size();
    std::size_t needs = 0;
    for (std::size_t i = 0; i < chain_.segments.size(); ++i) {
      while (needs < chain_.gathers.size() && segment_of_[unit_first_use(chain_.gathers[needs])] <= i) ++needs;
      chain_.segments[i].needs = needs;
    }
    for (auto* units : {&chain_.gathers, &chain_.reductions}) {
      for (std::size_t i = 0; i < units->size(); ++i) {
        ChainUnit& unit = (*units)[i];
        unit.ready = segment_of_[unit.ready];
        for (TaskId const task : unit.tasks) place_[at(task)] = i;
      }
    }
  }

  void count_memory() {
    // At each place: bytes made there, less those that are free before it.
    std::vector<std::int64_t> change(computed_.size() + 1, 0);
    std::vector<std::int64_t> made(computed_.size() + 1, 0);  // at each place: bytes made there
    std::vector<std::int64_t> freed(chain_.segments.size() + 1, 0);
    chain_.gathered_bytes.assign(chain_.gathers.size() + 1, 0);
    chain_.reduced_bytes.assign(chain_.reductions.size() + 1, 0);
    chain_.made_bytes.assign(chain_.reductions.size() + 1, 0);
    for (Storage const& storage : problem_.storages()) {
      if (storage.first == kNone && storage.kept) continue;  // resident
      auto const place = storage.first == kNone ? 0 : place_[at(storage.first)];
      bool const for_good =
          storage.kept || any(storage.users, [&](TaskId user) {
            return is(user, ChainRole::aside) && storage.first != kNone && is(storage.first, ChainRole::segment);
          });
      switch (storage.first == kNone ? ChainRole::segment : role_[at(storage.first)]) {
        case ChainRole::gather:
          chain_.gathered_bytes[place + 1] += storage.bytes;
          if (!for_good) freed[segment_of_[behind_last_use(chain_.gathers[place])]] += storage.bytes;
          break;
        case ChainRole::reduction:
          chain_.made_bytes[place + 1] += storage.bytes;
          if (for_good) chain_.reduced_bytes[place + 1] -= storage.bytes;
          break;
        case ChainRole::segment: {
          change[place] += storage.bytes;
          if (storage.first != kNone) made[place] += storage.bytes;
          if (for_good) break;
          auto const reduction = last_reduction(storage);
          if (!reduction) {
            change[behind_last_user(storage)] -= storage.bytes;
            break;
          }
          chain_.reduced_bytes[*reduction + 1] += storage.bytes;
          break;
        }
        case ChainRole::aside: break;
      }
    }
    for (auto* sums : {&chain_.gathered_bytes, &chain_.reduced_bytes, &chain_.made_bytes}) {
      for (std::size_t i = 1; i < sums->size(); ++i) (*sums)[i] += (*sums)[i - 1];
    }
    std::int64_t live = problem_.resident_bytes();
    std::int64_t free = 0;
    for (std::size_t i = 0; i < computed_.size(); ++i) {
      live += change[i];
      ChainSegment& segment = chain_.segments[segment_of_[i]];
      if (i == 0 || segment_of_[i] != segment_of_[i - 1]) {
        free += freed[segment_of_[i]];
        segment.before_bytes = live - made[i];
        segment.freed_bytes = free;
      }
      segment.running_bytes = std::max(segment.running_bytes, live);
    }
  }

  /// The last unit of reductions that uses the storage.
  [[nodiscard]] std::optional<std::size_t> last_reduction(Storage const& storage) const {
    std::optional<std::size_t> last;
    for (TaskId const user : storage.users) {
      if (is(user, ChainRole::reduction)) last = std::max(last.value_or(0), place_[at(user)]);
    }
    return last;
  }

  Problem const& problem_;
  std::vector<TaskId> const& order_;
  std::vector<ChainRole> role_;
  std::vector<std::size_t> place_;  ///< by task: its place in computed_, or its unit
  std::vector<TaskId> computed_;
  std::vector<std::size_t> segment_of_;  ///< by place in computed_
  SendChain chain_;
};

}  // namespace

std::optional<SendChain> send_chain(Problem const& problem, std::vector<TaskId> const& order,
                                    ChainLimits const& limits) {
  return ChainMaker(problem, order).make(limits);
}

}  // namespace weft
