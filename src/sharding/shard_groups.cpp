#include "sharding/shard_groups.hpp"

#include <fmt/format.h>

#include <utility>

#include "weft/error.hpp"

namespace weft {
namespace {

CommunicatorOptions named(Communicator const& world, char const* suffix) {
  CommunicatorOptions options = world.options();
  options.name += options.name.empty() ? suffix : fmt::format(" {}", suffix);
  options.small_staging = true;  // units move in symmetric memory
  return options;
}

}  // namespace

int ShardGroups::checked_shard_size(int ranks, FullyShardedOptions const& options) {
  int const size = options.shard_size == 0 ? ranks : options.shard_size;
  if (size > 0 && ranks % size == 0) return size;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("fully sharded: shard_size {} does not divide {} ranks", options.shard_size, ranks));
}

ShardGroups::ShardGroups(Communicator& world, FullyShardedOptions const& options)
    : ranks(world.size()),
      shard_rank(world.rank() % checked_shard_size(world.size(), options)),
      shard_size(checked_shard_size(world.size(), options)),
      replica(world.rank() / shard_size),
      replicas(world.size() / shard_size),
      gathers(*world.split(replica, world.rank(), named(world, "gathers"))),
      reductions(replicas > 1 && options.hybrid_sum == HybridSum::rank_order
                     ? world.duplicate(named(world, "reductions"))
                     : gathers.duplicate(named(world, "reductions"))),
      rank_order(replicas > 1 && options.hybrid_sum == HybridSum::rank_order) {
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

}  // namespace weft
