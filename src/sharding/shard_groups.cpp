#include "sharding/shard_groups.hpp"

#include <fmt/format.h>

#include <utility>

#include "sharding/compute_side.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

CommunicatorOptions named(Communicator const& world, char const* suffix) {
  CommunicatorOptions options = world.options();
  options.name += options.name.empty() ? suffix : fmt::format(" {}", suffix);
  options.small_staging = true;  // units move in symmetric memory
  return options;
}

// Connects `world`, so that what is split from it is connected too.
Communicator& connected(Communicator& world, Device device) {
  if (device.type != DeviceType::cpu) world.connect(device);
  return world;
}

// Like a duplicate, but connected where `of` is.
Communicator same_ranks(Communicator& of, CommunicatorOptions const& options, Device device) {
  if (device.type == DeviceType::cpu) return of.duplicate(options);
  return std::move(*of.split(0, of.rank(), options));
}

bool sums_in_rank_order(int replicas, FullyShardedOptions const& options, Device device) {
  return device.type == DeviceType::cpu && replicas > 1 && options.hybrid_sum == HybridSum::rank_order;
}

}  // namespace

int ShardGroups::checked_shard_size(int ranks, FullyShardedOptions const& options) {
  int const size = options.shard_size == 0 ? ranks : options.shard_size;
  if (size > 0 && ranks % size == 0) return size;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("fully sharded: shard_size {} does not divide {} ranks", options.shard_size, ranks));
}

ShardGroups::ShardGroups(Communicator& world, FullyShardedOptions const& options, Device device)
    : ranks(connected(world, device).size()),
      shard_rank(world.rank() % checked_shard_size(world.size(), options)),
      shard_size(checked_shard_size(world.size(), options)),
      replica(world.rank() / shard_size),
      replicas(world.size() / shard_size),
      gathers(*world.split(replica, world.rank(), named(world, "gathers"))),
      reductions(sums_in_rank_order(replicas, options, device)
                     ? world.duplicate(named(world, "reductions"))
                     : same_ranks(gathers, named(world, "reductions"), device)),
      rank_order(sums_in_rank_order(replicas, options, device)) {
  if (replicas > 1) replicated = world.split(shard_rank, world.rank(), named(world, "replicas"));
}

std::vector<int> ShardGroups::world_ranks(Communicator const& of) const {
  bool const across = replicated && &of == &*replicated;
  int const first = of.size() == ranks ? 0 : across ? shard_rank : replica * shard_size;
  std::vector<int> numbers;
  for (int rank = 0; rank < of.size(); ++rank) numbers.push_back(first + (across ? shard_size : 1) * rank);
  return numbers;
}

void ShardGroups::abort(std::string const& reason) noexcept {
  gathers.abort(reason);
  reductions.abort(reason);
  if (replicated) replicated->abort(reason);
}

void ShardGroups::throw_if_failed() const {
  weft::throw_if_failed(gathers);
  weft::throw_if_failed(reductions);
  if (replicated) weft::throw_if_failed(*replicated);
}

}  // namespace weft
