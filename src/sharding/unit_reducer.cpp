#include "sharding/unit_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "core/log.hpp"
#include "kernels/cpu/optim/gradients.hpp"
#include "kernels/cpu/reduce.hpp"
#include "optim/cuda/on_gpu.hpp"
#include "sharding/flat_memory.hpp"
#include "sharding/unit_tags.hpp"
#include "weft/error.hpp"

namespace weft {

UnitReducer::UnitReducer(ShardGroups& groups, UnitLayout const& layout, Options options)
    : groups_(groups),
      layout_(layout),
      options_(std::move(options)),
      map_(pool_capacity()),
      pool_(allocate_bytes(groups.reductions, map_.capacity(), MemoryKind::communication, options_.compute.device())),
      states_(layout.unit_count()) {
  auto const parts = static_cast<std::size_t>(groups.shard_size);
  std::size_t bytes = 0;
  std::size_t converted = 0;
  for (std::size_t flat = 0; flat < layout.flat_count(); ++flat) {
    std::size_t const whole = layout.count(flat) * size_of(layout.types(flat).reduced);
    bytes += whole / parts;
    if (layout.types(flat).reduced != layout.types(flat).gradient) converted = std::max(converted, whole);
  }
  Device const device = options_.compute.device();
  converted_ = allocate_bytes(groups.reductions, converted, MemoryKind::communication, device);
  shard_memory_ = allocate_bytes(groups.replicas > 1 ? *groups.replicated : groups.reductions, bytes,
                                 MemoryKind::gradients, device);
  std::size_t offset = 0;
  for (std::size_t flat = 0; flat < layout.flat_count(); ++flat) {
    shards_.push_back(view_at(shard_memory_, offset, layout.count(flat) / parts, layout.types(flat).reduced));
    offset += shards_.back().bytes();
  }
}

std::size_t UnitReducer::pool_capacity() const {
  std::size_t most = options_.cap / kCacheLine * kCacheLine;
  if (most < options_.cap && most + kCacheLine > most) most += kCacheLine;  // rounded up, unless that overflows
  for (std::size_t first = 0; first < layout_.unit_count(); ++first) {
    std::size_t bytes = 0;
    for (std::size_t u = first; u < std::min(first + options_.units, layout_.unit_count()); ++u) {
      bytes += layout_.gradient_bytes(u);
    }
    most = std::max(most, bytes);
  }
  return most;
}

void UnitReducer::make_holdable() {
  if (!held_offsets_.empty()) return;
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
  for (std::size_t unit = 0; unit < layout_.unit_count(); ++unit) {
    offsets.push_back(bytes);
    bytes += layout_.gradient_bytes(unit);
  }
  held_memory_ = allocate_bytes(groups_.reductions, bytes, MemoryKind::gradients, options_.compute.device());
  held_offsets_ = std::move(offsets);
}

BufferView UnitReducer::flat_of(std::size_t unit, std::size_t flat) const noexcept {
  State const& state = states_[unit];
  return view_at(state.in_pool ? pool_ : held_memory_, state.offset + layout_.gradient_offset(flat),
                 layout_.count(flat), layout_.types(flat).gradient);
}

BufferView UnitReducer::gradient(std::size_t index) const noexcept {
  UnitLayout::Place const& place = layout_.place(index);
  if (place.count == 0) return {nullptr, 0, layout_.types(place.flat).gradient, options_.compute.device()};
  return flat_of(place.unit, place.flat).slice(place.offset, place.count);
}

void UnitReducer::retire_oldest() {
  Sending const oldest = sending_.front();
  wait_for(oldest.unit);
  map_.release(oldest.offset, layout_.gradient_bytes(oldest.unit));
  sending_.pop_front();
}

void UnitReducer::begin(std::size_t unit, bool hold) {
  State& state = states_[unit];
  state.hold = hold;
  state.in_pool = !hold && !state.held;
  if (!state.in_pool) {
    wait_for(unit);
    state.offset = held_offsets_[unit];
    return;
  }
  for (;;) {
    if (auto const offset = map_.place(layout_.gradient_bytes(unit))) {
      state.offset = *offset;
      return;
    }
    if (sending_.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("fully sharded: no room for the gradients of unit '{}': others are being written; end "
                              "their backward first or raise gradient_units or gradient_cap",
                              layout_.name(unit)));
    }
    retire_oldest();
  }
}

void UnitReducer::end(std::size_t unit) {
  State& state = states_[unit];
  state.held = state.hold;
  if (state.hold) {
    if (!options_.compute.is_gpu()) held_turns_.note(unit);
  } else {
    send(unit);
  }
}

void UnitReducer::send_held() {
  for (std::size_t unit = 0; unit < states_.size(); ++unit) {
    State& state = states_[unit];
    if (!state.held) continue;
    state.in_pool = false;
    state.offset = held_offsets_[unit];
    state.held = false;
    send(unit);
  }
}

void UnitReducer::close(GradientPresence& presence) {
  compare(groups_.reductions, presence);
  bool const is_all_ranks = groups_.rank_order || !groups_.replicated;
  if (!is_all_ranks) compare(*groups_.replicated, presence);
}

void UnitReducer::compare(Communicator& communicator, GradientPresence& presence) {
  if (!held_offsets_.empty() && !options_.compute.is_gpu()) held_turns_.compare(communicator, options_.stream);
  presence.agree(communicator, options_.stream);
}

void UnitReducer::send(std::size_t unit) {
  State& state = states_[unit];
  if (!state.summed) sent_.push_back(unit);
  options_.compute.lead(options_.stream);
  for (std::size_t flat = layout_.first_flat(unit); flat < layout_.last_flat(unit); ++flat) {
    if (layout_.count(flat) != 0) send_flat(unit, flat);
  }
  state.summed = true;
  state.done.record(options_.stream);
  if (state.in_pool) sending_.push_back({unit, state.offset});
}

void UnitReducer::send_flat(std::size_t unit, std::size_t flat) {
  State& state = states_[unit];
  BufferView const written = flat_of(unit, flat);
  BufferView whole = written;
  if (layout_.types(flat).reduced != written.dtype) {
    whole = view_at(converted_, 0, written.count, layout_.types(flat).reduced);
    convert(written, whole);
  }
  BufferView const shard = shards_[flat];
  // What is to be added to an earlier micro-step's average is reduced in place first.
  BufferView const part = whole.slice(static_cast<std::size_t>(groups_.shard_rank) * shard.count, shard.count);
  CollectiveOptions const on{.stream = options_.stream, .timeout = {}, .tag = tag_of({unit, Phase::backward})};
  std::optional<DeviceTiming> timing;
  if (options_.timed && options_.compute.is_gpu()) {
    timing.emplace(*options_.compute.stream());
    timing->start(options_.stream);
  }
  Launch launch = reduce(flat, whole, state.summed ? part : shard, on);
  if (timing) timing->finish(options_.stream);
  launch.timing = std::move(timing);
  if (options_.compute.is_gpu()) {
    settle(flat, state.summed, part);
    poison(written, whole);
  } else {
    options_.stream.enqueue([=, this, add = state.summed, work = launch.last] {
      if (work.error()) return;
      settle(flat, add, part);
      poison(written, whole);
    });
  }
  state.works.push_back(launch.first);
  state.works.push_back(launch.last);
  launches_.push_back(launch);
}

void UnitReducer::convert(BufferView const& from, BufferView const& to) const {
#ifdef WEFT_CUDA_TRAINING
  if (options_.compute.is_gpu()) return cuda::on_gpu::convert(from, to, options_.stream);
#endif
  Stream(options_.stream).enqueue([from, to] { kernels::convert(from.data, from.dtype, to.data, to.dtype, to.count); });
}

void UnitReducer::settle(std::size_t flat, bool add, BufferView const& part) const {
  BufferView const shard = shards_[flat];
  if (add) sum_up(shard, part);
  if (options_.on_shard) options_.on_shard(flat);
}

void UnitReducer::sum_up(BufferView const& shard, BufferView const& part) const {
#ifdef WEFT_CUDA_TRAINING
  if (options_.compute.is_gpu()) return cuda::on_gpu::add(part, shard, options_.stream);
#endif
  std::array<void* const, 1> const to{shard.data};
  std::array<void const* const, 2> const from{shard.data, part.data};
  kernels::reduce(to, from, shard.count, shard.dtype, ReduceOp::sum);
}

void UnitReducer::poison(BufferView const& written, BufferView const& whole) const {
  if (!options_.poison) return;
  ComputeSide const here = options_.compute.is_gpu() ? ComputeSide(options_.stream) : ComputeSide();
  here.overwrite(written);
  here.overwrite(whole);
}

UnitReducer::Launch UnitReducer::reduce(std::size_t flat, BufferView const& whole, BufferView const& shard,
                                        CollectiveOptions const& on) {
  if (groups_.rank_order) return reduce_in_rank_order(flat, whole, shard, on);
  Work const first = groups_.reductions.reduce_scatter(whole, shard, ReduceOp::avg, on);
  if (!groups_.replicated) return {flat, first, first};
  return {flat, first, groups_.replicated->all_reduce(shard, shard, ReduceOp::avg, on)};
}

// Every replica sums an equal part of each shard over all ranks; then the replicas exchange these parts.
UnitReducer::Launch UnitReducer::reduce_in_rank_order(std::size_t flat, BufferView const& whole,
                                                      BufferView const& shard, CollectiveOptions const& on) {
  auto const replicas = static_cast<std::size_t>(groups_.replicas);
  auto const shards = static_cast<std::size_t>(groups_.shard_size);
  std::size_t const part = shard.count / replicas;
  std::vector<std::size_t> const counts(shards * replicas, part);
  std::vector<std::size_t> offsets;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    offsets.push_back(rank % shards * shard.count + rank / shards * part);
  }
  BufferView const mine = shard.slice(static_cast<std::size_t>(groups_.replica) * part, part);
  Work const first = groups_.reductions.reduce_scatter(whole, mine, Parts{counts, offsets}, ReduceOp::avg, on);
  return {flat, first, groups_.replicated->all_gather(mine, shard, on)};
}

void UnitReducer::wait_for(std::size_t unit) {
  State& state = states_[unit];
  if (state.works.empty()) return;
  for (Work const& work : state.works) {
    try {
      options_.compute.wait_for(work, groups_.reductions);
    } catch (Error const& error) {
      throw_oldest_failure();
      throw failure_of(unit, error);
    }
  }
  options_.compute.wait_for(state.done);
  state.works.clear();
}

Error UnitReducer::failure_of(std::size_t unit, Error const& error) const {
  return {error.code(), fmt::format("reducing the gradients of unit '{}': {}", layout_.name(unit),
                                    name_units(error.what(), layout_))};
}

// Whichever unit is waited for: updates take units as they arrive, not as they were sent.
void UnitReducer::throw_oldest_failure() const {
  for (std::size_t const unit : sent_) {
    for (Work const& work : states_[unit].works) {
      auto const failed = work.known_error();
      if (!failed) continue;
      try {
        std::rethrow_exception(failed);
      } catch (Error const& error) {
        throw failure_of(unit, error);
      }
    }
  }
}

bool UnitReducer::has_arrived(std::size_t unit) const noexcept {
  State const& state = states_[unit];
  return state.works.empty() || state.done.query();
}

void UnitReducer::zero_unsent() const {
  for (std::size_t unit = 0; unit < states_.size(); ++unit) {
    if (states_[unit].summed) continue;
    for (std::size_t flat = layout_.first_flat(unit); flat < layout_.last_flat(unit); ++flat) {
      options_.compute.zero(shards_[flat]);
    }
  }
}

void UnitReducer::end_step() {
  while (!sending_.empty()) retire_oldest();
  held_turns_.end_step(layout_);
  timings_.clear();
  device_timings_.clear();
  for (Launch const& launched : launches_) {
    std::size_t const bytes = layout_.count(launched.flat) * size_of(layout_.types(launched.flat).reduced);
    if (launched.timing) device_timings_.push_back({bytes, *launched.timing});
    if (options_.compute.is_gpu()) continue;  // asking a GPU means waiting for it
    WorkTimings const first = launched.first.timings();
    timings_.push_back({bytes, first.enqueued, first.started, launched.last.timings().finished});
  }
  launches_.clear();
  sent_.clear();
  for (State& state : states_) state.summed = false;
  if (!options_.poison) return;
  for (BufferView const& shard : shards_) options_.compute.overwrite(shard);
}

void UnitReducer::drain(bool log_failures) noexcept {
  try {
    for (std::size_t unit = 0; unit < states_.size(); ++unit) wait_for(unit);
  } catch (std::exception const& error) {
    if (log_failures) {
      log(LogLevel::warn, fmt::format("fully sharded: its last gradients did not arrive: {}", error.what()));
    }
  }
  options_.stream.synchronize();
}

}  // namespace weft
