#pragma once

#include <cstddef>
#include <vector>

#include "collectives/shm/patience.hpp"
#include "core/topology.hpp"
#include "weft/config.hpp"

namespace weft::shm {

/// Every size and waiting policy of the shm back end, derived from the caches and from how ranks share cores. Equal on
/// all ranks.
struct Tuning {
  bool reads_peers = false;         ///< every rank may copy out of every other's private memory
  bool share_work = false;          ///< more ranks than cores: whichever rank runs works for all
  int cores = 0;                    ///< of all ranks together
  std::size_t l2_bytes = 0;         ///< of a core
  std::size_t ring_bytes = 0;       ///< staging ring per rank
  std::size_t feed_places = 0;      ///< of each rank's feed
  std::size_t places_to_root = 0;   ///< how many of those are used to give to a root
  std::size_t swap_bytes = 0;       ///< each of the two blocks that two ranks swap
  std::size_t one_phase_bytes = 0;  ///< all_reduce up to here: every rank reduces everything
  std::size_t staged_bytes =
      0;  ///< up to here, at least, buffers are staged even when symmetric: pulling from live caches costs the peer
  std::size_t chunk_bytes = 0;        ///< private memory is staged in chunks of this size, per rank
  std::size_t pipeline_bytes = 0;     ///< a chunk where one rank only gives: others work on the one before meanwhile
  std::size_t prefetch_bytes = 0;     ///< staging lines to own ahead of the next call
  std::size_t claim_bytes = 0;        ///< a claimed chunk
  int group_ranks = 0;                ///< neighbouring ranks that share an L3 cache, or a level of a tree; 0: no groups
  std::size_t streaming_bytes = 0;    ///< results from here on bypass the caches
  std::size_t most_cached_bytes = 0;  ///< results from here on bypass the caches whatever was measured
  /// In calls that work in their ranks' own memory, and whose buffers hold up to twice this much on a rank, a rank that
  /// alone reads what a peer has written takes its lines (see kernels::take()). Calls that only copy do so, unless this
  /// is 0, for whatever stays in the caches.
  std::size_t take_bytes = 0;
  bool polls_at_once = false;  ///< of two ranks: no fence between a rank's announcement and its look at the peer's
  Patience inline_patience;
  Patience stream_patience;
};

/// Up to so many ranks that share cores stage in longer blocks, and stage longer calls without asking where buffers
/// lie. What more ranks stage leaves the caches.
inline constexpr int kFewTurns = 16;

/// How many neighbouring ranks make a group; `caches`: the number of each rank's L3 cache. A group is the ranks that
/// share one, where all groups are equal and in rank order. Otherwise, where there are many ranks, it is a level of a
/// tree of two levels. 0: no groups.
[[nodiscard]] int group_size(std::vector<int> const& caches);

/// `ranks_share_cores`: some cores run more than one rank. `cores`: cores of all ranks together. `small_staging`: see
/// CommunicatorOptions.
[[nodiscard]] Tuning make_tuning(Topology const& topology, Config const& config, int ranks, int cores,
                                 bool ranks_share_cores, bool small_staging = false);

}  // namespace weft::shm
