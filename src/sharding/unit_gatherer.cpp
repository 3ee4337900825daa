#include "sharding/unit_gatherer.hpp"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <utility>

#include "core/log.hpp"
#include "sharding/flat_memory.hpp"
#include "sharding/unit_tags.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

/// Most gathers of a step whose times are kept: an evaluation makes many, and need not be followed by a step.
constexpr std::ptrdiff_t kMostTimed = 1 << 13;

// Units that are used where they are take no room in the pool.
std::vector<PlannedUnit> planned(UnitLayout const& layout, bool owns_all) {
  std::vector<PlannedUnit> units = layout.planned();
  for (PlannedUnit& unit : units) unit.bytes = owns_all ? 0 : unit.bytes;
  return units;
}

}  // namespace

UnitGatherer::UnitGatherer(Communicator& communicator, UnitLayout const& layout, Options options)
    : communicator_(communicator),
      layout_(layout),
      options_(std::move(options)),
      planner_(planned(layout, owns_all()), options_.policy),
      pool_(allocate_bytes(communicator, owns_all() ? 0 : options_.policy.capacity, MemoryKind::communication,
                           options_.compute.device())),
      works_(layout.flat_count()),
      arriving_(layout.flat_count()) {
  auto const parts = static_cast<std::size_t>(communicator.size());
  std::size_t bytes = 0;
  for (std::size_t flat = 0; flat < layout.flat_count(); ++flat) {
    bytes += layout.count(flat) / parts * size_of(layout.types(flat).parameter);
  }
  shard_memory_ = allocate_bytes(communicator, bytes, MemoryKind::parameters, options_.compute.device());
  std::size_t offset = 0;
  for (std::size_t flat = 0; flat < layout.flat_count(); ++flat) {
    shards_.push_back(view_at(shard_memory_, offset, layout.count(flat) / parts, layout.types(flat).parameter));
    offset += shards_.back().bytes();
  }
}

BufferView UnitGatherer::flat_at(std::size_t flat, std::size_t unit_offset) const noexcept {
  if (owns_all()) return shards_[flat];
  return view_at(pool_, unit_offset + layout_.gathered_offset(flat), layout_.count(flat),
                 layout_.types(flat).parameter);
}

BufferView UnitGatherer::parameter(std::size_t index) const noexcept {
  UnitLayout::Place const& place = layout_.place(index);
  if (place.count == 0) return {nullptr, 0, layout_.types(place.flat).parameter, options_.compute.device()};
  return flat_at(place.flat, planner_.offset(place.unit)).slice(place.offset, place.count);
}

void UnitGatherer::launch(Use const& use, std::size_t offset) {
  CollectiveOptions const how{.stream = options_.stream, .timeout = {}, .tag = tag_of(use)};
  options_.compute.lead(options_.stream);  // after what was here is used and shards are updated
  for (std::size_t flat = layout_.first_flat(use.unit); flat < layout_.last_flat(use.unit); ++flat) {
    if (layout_.count(flat) == 0) continue;
    gather(flat, flat_at(flat, offset), how);
  }
}

void UnitGatherer::gather(std::size_t flat, BufferView const& to, CollectiveOptions const& how) {
  auto& timing = arriving_[flat];
  if (options_.timed && options_.compute.is_gpu()) {
    timing.emplace(*options_.compute.stream());
    timing->start(options_.stream);
  }
  works_[flat] = communicator_.all_gather(shards_[flat], to, how);
  if (timing) timing->finish(options_.stream);
  if (std::ssize(launches_) == kMostTimed) launches_.erase(launches_.begin(), launches_.begin() + kMostTimed / 2);
  launches_.push_back({flat, works_[flat], timing});
}

// Done on the stream, because the unit may still be on its way here, and because what comes to this place next comes by
// the same stream.
void UnitGatherer::poison(std::size_t unit, std::size_t offset) {
  if (options_.compute.is_gpu()) {
    options_.compute.lead(options_.stream);
    ComputeSide const gathers(options_.stream);
    for (std::size_t flat = layout_.first_flat(unit); flat < layout_.last_flat(unit); ++flat) {
      gathers.overwrite(flat_at(flat, offset));
    }
    return;
  }
  for (std::size_t flat = layout_.first_flat(unit); flat < layout_.last_flat(unit); ++flat) {
    options_.stream.enqueue([view = flat_at(flat, offset), work = works_[flat]] {
      if (!work.error()) overwrite(view);
    });
  }
}

void UnitGatherer::carry_out(GatherAction const& action) {
  if (owns_all()) return;
  if (action.kind == GatherAction::Kind::gather) {
    launch({action.unit, action.phase}, action.offset);
  } else if (options_.poison) {
    poison(action.unit, action.offset);
  }
}

void UnitGatherer::carry_out() {
  while (carried_out_ < planner_.actions().size()) carry_out(planner_.actions()[carried_out_++]);
  planner_.clear();
  carried_out_ = 0;
}

void UnitGatherer::wait_for(std::size_t unit) {
  for (std::size_t flat = layout_.first_flat(unit); flat < layout_.last_flat(unit); ++flat) {
    try {
      options_.compute.wait_for(works_[flat], communicator_);
      if (arriving_[flat]) arriving_[flat]->wait_on(*options_.compute.stream());
      arriving_[flat].reset();
      if (options_.compute.is_gpu()) works_[flat] = Work();  // a graph may not wait for what it did not record
    } catch (Error const& error) {
      throw Error(error.code(),
                  fmt::format("gathering unit '{}': {}", layout_.name(unit), name_units(error.what(), layout_)));
    }
  }
}

void UnitGatherer::wait_for_all() {
  for (std::size_t unit = 0; unit < layout_.unit_count(); ++unit) wait_for(unit);
}

void UnitGatherer::join() {
  wait_for_all();
  if (options_.poison && !owns_all())
    options_.compute.follow(options_.stream);  // released units are overwritten with NaN there
}

void UnitGatherer::begin(Use const& use) {
  planner_.begin(use);
  carry_out();
}

void UnitGatherer::end(Use const& use) {
  planner_.end(use);
  carry_out();
}

void UnitGatherer::release_all() {
  planner_.release_all();
  carry_out();
  wait_for_all();
}

// The new pool is allocated before the old one is freed, so that nothing has changed where there is no room.
void UnitGatherer::use(GatherPolicy const& policy) {
  bool const moves = !owns_all() && policy.capacity != options_.policy.capacity;
  Buffer pool =
      moves ? allocate_bytes(communicator_, policy.capacity, MemoryKind::communication, options_.compute.device())
            : Buffer();
  release_all();
  options_.stream.synchronize();  // released units may be overwritten there
  if (moves) pool_ = std::move(pool);
  options_.policy = policy;
  planner_.use(policy);
  carry_out();
}

void UnitGatherer::end_step() {
  timings_.clear();
  device_timings_.clear();
  for (Launch const& launched : launches_) {
    std::size_t const bytes = layout_.plan().buckets[launched.flat].bytes();
    if (launched.timing) device_timings_.push_back({bytes, *launched.timing});
    if (options_.compute.is_gpu()) continue;  // asking a GPU means waiting for it
    WorkTimings const times = launched.work.timings();
    timings_.push_back({bytes, times.enqueued, times.started, times.finished});
  }
  launches_.clear();
  planner_.end_step();
}

void UnitGatherer::launch_first(std::span<char const> updated) {
  while (carried_out_ < planner_.actions().size()) {
    GatherAction const& action = planner_.actions()[carried_out_];
    if (action.kind == GatherAction::Kind::gather && updated[action.unit] == 0) return;
    carry_out(action);
    ++carried_out_;
  }
}

bool UnitGatherer::drain(bool log_failures) noexcept {
  bool arrived = true;
  try {
    wait_for_all();
  } catch (std::exception const& error) {
    arrived = false;
    if (log_failures)
      log(LogLevel::warn, fmt::format("fully sharded: its last parameters did not arrive: {}", error.what()));
  }
  options_.stream.synchronize();
  return arrived;
}

}  // namespace weft
