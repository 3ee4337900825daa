#include "sharding/gather_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weft/error.hpp"

namespace weft {

GatherPlanner::GatherPlanner(std::vector<PlannedUnit> units, GatherPolicy const& policy)
    : units_(std::move(units)), policy_(policy), order_(units_.size()), map_(policy.capacity), states_(units_.size()) {}

void GatherPlanner::release(std::size_t unit) {
  map_.release(states_[unit].offset, units_[unit].bytes);
  states_[unit].gathered = false;
  actions_.push_back({GatherAction::Kind::release, unit, states_[unit].offset, Phase::forward});
}

// Finds room for a unit by releasing others, those needed last first, but none that is needed before `keep_before` more
// uses.
bool GatherPlanner::try_place(Use const& use, std::size_t keep_before) {
  std::size_t const unit = use.unit;
  for (;;) {
    if (auto const offset = map_.place(units_[unit].bytes)) {
      states_[unit].gathered = true;
      states_[unit].offset = *offset;
      peak_ = std::max(peak_, map_.used());
      actions_.push_back({GatherAction::Kind::gather, unit, *offset, use.phase});
      return true;
    }
    was_short_ = true;
    std::size_t victim = units_.size();
    std::size_t victims_use = keep_before;
    for (std::size_t other = 0; other < units_.size(); ++other) {
      if (!states_[other].gathered || states_[other].in_use || units_[other].bytes == 0) continue;
      std::size_t const needed = order_.next_use(other);
      if (needed < victims_use || (needed == victims_use && victim != units_.size())) continue;
      victim = other;
      victims_use = needed;
    }
    if (victim == units_.size()) return false;
    release(victim);
  }
}

std::string GatherPlanner::units_in_use() const {
  std::string names;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (states_[unit].in_use) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", units_[unit].name);
  }
  return names;
}

void GatherPlanner::begin(Use const& use) {
  State& state = states_[use.unit];
  order_.used(use);
  if (!state.gathered && !try_place(use, 0)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("fully sharded: no room to gather unit '{}' of {} bytes: {} are in use, and the cap is {} "
                            "bytes; raise gather_cap or end their use first",
                            units_[use.unit].name, units_[use.unit].bytes, units_in_use(), policy_.capacity));
  }
  state.in_use = true;
  prefetch();
}

// For how many of the expected uses units are gathered ahead. Between turns the room of the unit in use is free for one
// more.
std::size_t GatherPlanner::uses_ahead() const noexcept {
  bool const idle = std::none_of(states_.begin(), states_.end(), [](State const& state) { return state.in_use; });
  std::size_t const most = std::min(policy_.prefetch, units_.size()) + (idle && policy_.prefetch > 0 ? 1 : 0);
  auto const upcoming = order_.upcoming();
  std::size_t units = 0;
  std::size_t at = 0;
  for (; at < upcoming.size() && units < most; ++at) {
    std::size_t const unit = upcoming[at].unit;
    if (!states_[unit].in_use && order_.next_use(unit) == at) ++units;
  }
  return at;
}

void GatherPlanner::prefetch() {
  auto const upcoming = order_.upcoming().first(uses_ahead());
  for (std::size_t at = 0; at < upcoming.size(); ++at) {
    if (!states_[upcoming[at].unit].gathered && !try_place(upcoming[at], at + 1)) return;
  }
}

bool GatherPlanner::is_wanted_soon(std::size_t unit) const noexcept {
  return order_.next_use(unit) < std::max<std::size_t>(uses_ahead(), 1);
}

void GatherPlanner::end(Use const& use) {
  states_[use.unit].in_use = false;
  bool const keeps = use.phase == Phase::forward && !policy_.reshard_after_forward;
  if (!keeps && !is_wanted_soon(use.unit)) release(use.unit);
  prefetch();
}

void GatherPlanner::release_all() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (states_[unit].gathered) release(unit);
  }
}

void GatherPlanner::use(GatherPolicy const& policy) {
  release_all();
  policy_ = policy;
  map_ = BlockMap(policy.capacity);
  prefetch();
}

void GatherPlanner::end_step() {
  release_all();
  order_.end_step();
  prefetch();
}

namespace {

bool suffices(std::vector<PlannedUnit> const& units, GatherPolicy const& policy) {
  GatherPlanner planner(units, policy);
  for (int step = 0; step < 2; ++step) {
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      planner.begin({unit, Phase::forward});
      planner.end({unit, Phase::forward});
    }
    for (std::size_t unit = units.size(); unit-- > 0;) {
      planner.begin({unit, Phase::backward});
      planner.end({unit, Phase::backward});
    }
    planner.end_step();
    if (planner.was_short()) return false;
  }
  return true;
}

}  // namespace

std::size_t capacity_for(std::vector<PlannedUnit> const& units, GatherPolicy const& policy) {
  std::size_t total = 0;
  for (PlannedUnit const& unit : units) total += unit.bytes;
  std::size_t const window = std::min(policy.prefetch, units.size()) + 1;
  std::size_t least = 0;  // the most that neighbours gathered together take
  for (std::size_t first = 0; first < units.size(); ++first) {
    std::size_t bytes = 0;
    for (std::size_t u = first; u < std::min(first + window, units.size()); ++u) bytes += units[u].bytes;
    least = std::max(least, bytes);
  }
  // Units of unequal sizes leave gaps, which may take more.
  constexpr std::size_t kLine = 64;
  std::size_t const more = (least / 16 + kLine) / kLine * kLine;
  for (std::size_t capacity = least; capacity < total; capacity += more) {
    if (suffices(units, {capacity, policy.prefetch, policy.reshard_after_forward})) return capacity;
  }
  return total;
}

}  // namespace weft
