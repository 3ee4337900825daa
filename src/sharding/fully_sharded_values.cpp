// FullySharded::Impl: its first values, and what checkpoints read and write.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/optim/gradients.hpp"
#include "runtime/stream_impl.hpp"
#include "sharding/fully_sharded_impl.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 19U;  ///< elements

// Copies values into `mine` as far as the two overlap: `values` begins at element `first`, `mine` at `mine_first`.
void take_overlap(std::span<float> mine, std::size_t mine_first, std::size_t first, BufferView const& values) {
  std::size_t const begin = std::max(first, mine_first);
  std::size_t const end = std::min(first + values.count, mine_first + mine.size());
  if (begin >= end) return;
  BufferView const from = values.slice(begin - first, end - begin);
  kernels::convert(from.data, from.dtype, mine.data() + (begin - mine_first), DataType::f32, from.count);
}

}  // namespace

void FullySharded::Impl::take_values(Communicator& world, std::vector<ShardedUnit> const& units,
                                     FullyShardedOptions const& options) {
  Buffer const chunk = Buffer::host(kChunk, DataType::f32);
  std::size_t index = 0;
  for (ShardedUnit const& unit : units) {
    for (ParameterGroup const& group : unit.groups) {
      for (BufferView const& parameter : group.parameters) {
        Buffer made;
        if (options.first_values && world.rank() == 0 && parameter.count != 0) {
          made = Buffer::host(parameter.count, parameter.dtype);
          options.first_values(index, made.view());
        }
        take_parameter(world, index++, made.data() != nullptr ? made.view() : parameter, chunk);
      }
    }
  }
}

// Rank 0's values reach every rank through a small buffer, and each rank keeps what it owns. Masters take the values as
// they were given, before they are rounded to the type that is gathered.
void FullySharded::Impl::take_parameter(Communicator& world, std::size_t index, BufferView const& values,
                                        Buffer const& chunk) {
  ShardRange const mine = shards_.shard(index);
  std::vector<float> exact(mine.count);
  for (std::size_t first = 0; first < values.count; first += kChunk) {
    std::size_t const count = std::min(kChunk, values.count - first);
    BufferView const part(chunk.data(), count, values.dtype);
    if (world.rank() == 0) bring_here(values.slice(first, count), part);
    world.broadcast(part, 0).wait();
    take_overlap(exact, mine.first, first, part);
  }
  shards_.set_master("FullySharded", index, exact);
}

void FullySharded::Impl::bring_here(BufferView const& values, BufferView const& to) const {
  if (values.device.type == DeviceType::cpu) {
    std::memcpy(to.data, values.data, to.bytes());
    return;
  }
  compute_->impl().copy(to.data, values.data, to.bytes());
  Stream(*compute_).synchronize();
}

BufferView FullySharded::Impl::piece_of(ShardPiece const& piece, BufferView const& flat_shard) const noexcept {
  std::size_t const start = flat_shard.count * static_cast<std::size_t>(groups_.shard_rank);
  return flat_shard.slice(layout_.place(piece.tensor).offset + piece.first - start, piece.count);
}

BufferView FullySharded::Impl::parameter_shard(std::size_t index) const {
  ShardRange const mine = shards_.shard(index);
  std::size_t const flat = layout_.place(index).flat;
  if (mine.count == 0) return {nullptr, 0, layout_.types(flat).parameter, side_.device()};
  return piece_of({index, flat, mine.first, mine.count}, gatherer_.shard(flat));
}

BufferView FullySharded::Impl::gradient_shard(std::size_t index) const {
  ShardRange const mine = shards_.shard(index);
  std::size_t const flat = layout_.place(index).flat;
  if (mine.count == 0) return {nullptr, 0, layout_.types(flat).reduced, side_.device()};
  return piece_of({index, flat, mine.first, mine.count}, reducer_.shard(flat));
}

// Gathered units keep their old values until share_parameters(): whether a unit is gathered must not differ between
// ranks.
void FullySharded::Impl::settle(char const* call) {
  check_idle(call);
  guarded([this] { gatherer_.wait_for_all(); });
}

void FullySharded::Impl::share_parameters() {
  check_usable();
  check_idle("share_parameters");
  guarded([this] { gatherer_.release_all(); });
}

}  // namespace weft
