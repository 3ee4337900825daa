#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/communicator.hpp"
#include "weft/fully_sharded.hpp"

namespace weft {

/// The communicators of a two-dimensional split: each group of `shard_size` consecutive ranks shares one replica of the
/// model out; ranks that own the same shard in different groups hold copies of it.
struct ShardGroups {
  /// Collective. On a GPU all of them are connected. @throws Error{invalid_argument} for a shard_size that does not
  /// divide the ranks.
  ShardGroups(Communicator& world, FullyShardedOptions const& options, Device device = {});

  int ranks;       ///< in all
  int shard_rank;  ///< which part this rank owns
  int shard_size;
  int replica;  ///< which replica this rank belongs to
  int replicas;
  Communicator gathers;                    ///< within a shard group
  Communicator reductions;                 ///< within a shard group; of all ranks where sums are in rank order
  std::optional<Communicator> replicated;  ///< of the ranks that own the same shard; none where that is this rank alone
  bool rank_order;                         ///< whether gradients of several replicas are summed in rank order

  /// The world's ranks that are ranks 0, 1, … of `of`, one of the three communicators.
  [[nodiscard]] std::vector<int> world_ranks(Communicator const& of) const;

  /// Aborts all three.
  void abort(std::string const& reason) noexcept;
  /// On a GPU: throws what has made calls of any of them fail, as far as it is known.
  void throw_if_failed() const;

  [[nodiscard]] static int checked_shard_size(int ranks, FullyShardedOptions const& options);
};

}  // namespace weft
