#include "collectives/shm/tuning.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/shm/feeds.hpp"
#include "collectives/shm/staging_ring.hpp"
#include "core/cache_line.hpp"

namespace weft::shm {

int group_size(std::vector<int> const& caches) {
  constexpr std::size_t kMany = 8;
  auto const ranks = caches.size();
  auto const change = std::find_if(caches.begin(), caches.end(), [&](int cache) { return cache != caches.front(); });
  auto const first = static_cast<std::size_t>(change - caches.begin());
  bool equal = first > 1 && first < ranks && ranks % first == 0;
  for (std::size_t rank = 0; rank < ranks && equal; ++rank) {
    auto const begin = rank / first * first;
    auto const earliest = std::find(caches.begin(), caches.end(), caches[rank]) - caches.begin();
    equal = static_cast<std::size_t>(earliest) == begin;  // a group has one cache, and its cache no other group
  }
  if (equal) return static_cast<int>(first);
  return ranks < kMany ? 0 : static_cast<int>(std::lround(std::sqrt(ranks)));
}

Tuning make_tuning(Topology const& topology, Config const& config, int ranks, int cores, bool ranks_share_cores,
                   bool small_staging) {
  constexpr std::size_t kKiB = 1024;
  Tuning tuning;
  tuning.share_work = ranks_share_cores;
  tuning.cores = cores;
  tuning.l2_bytes = topology.l2_bytes;
  // How far apart ranks lie is not known: between caches a line that was taken costs a tenth of one that was not,
  // within one at most twice as much.
  if (topology.has_owned_lines && cores > 1) tuning.take_bytes = std::numeric_limits<std::size_t>::max();

  // Rotate through more than L2, with all rings inside half of L3 (see StagingRing); never below what small jobs need.
  // Ranks that take turns on a core find one another's lines in its caches instead, as long as the rings stay there;
  // but a turn of every rank is dear, so that up to kFewTurns of them have blocks of 128 KiB.
  auto const within_l3 = topology.l3_bytes / 2 / static_cast<std::size_t>(ranks);
  auto const small_ring = std::max(384 * kKiB, topology.l2_bytes / 8 * 3);
  auto const shared_ring = ranks <= kFewTurns ? std::max(768 * kKiB, small_ring) : small_ring;
  auto const ring_bytes =
      ranks_share_cores ? shared_ring : std::max(1024 * kKiB, std::min(3 * topology.l2_bytes, within_l3));
  tuning.ring_bytes = config.staging_bytes.value_or(ring_bytes);
  if (small_staging) tuning.ring_bytes = std::min(tuning.ring_bytes, small_ring);
  tuning.ring_bytes = tuning.ring_bytes / kLine * kLine;
  auto const largest_block = StagingRing(nullptr, tuning.ring_bytes).max_block();

  // What lies in both the giver's and a reader's L2 is dear to write again, so feeds take up to twice L2. With many
  // ranks there is no memory for it.
  constexpr int kFewRanks = 8;
  tuning.feed_places = Feeds::kLeastPlaces;
  if (ranks <= kFewRanks && !small_staging) {
    auto const most = std::min({2 * topology.l2_bytes, within_l3, config.staging_bytes.value_or(within_l3)});
    while (tuning.feed_places < Feeds::kMostPlaces && tuning.feed_places * Feeds::kSlotBytes < most)
      tuning.feed_places *= 2;
  }
  // Where cores are shared, what several ranks give to one is in the caches when its turn comes, unless it is longer
  // than they are.
  tuning.places_to_root = ranks_share_cores ? Feeds::kLeastPlaces : tuning.feed_places;

  // Each rank reads ranks × bytes in one phase, about 2 × bytes in two, at the price of one more synchronisation.
  tuning.one_phase_bytes = std::min(largest_block, 16 * kKiB);
  if (ranks_share_cores) {
    // Ranks that take turns on a core share its caches: little is won by staging what can be reached directly, but
    // where to find that out takes longer (Selector's avoid_turns()).
    tuning.staged_bytes = tuning.one_phase_bytes;
    // All ranks together read ranks² × bytes in one phase, the cores in turns; to come together once more takes a turn
    // of every rank, about as long as 64 KiB of that.
    tuning.one_phase_bytes = std::min(tuning.one_phase_bytes, 64 * kKiB / static_cast<std::size_t>(ranks) / 64 * 64);
  } else if (ranks == 2) {
    tuning.swap_bytes = std::clamp(topology.l2_bytes / 8, 64 * kKiB, 512 * kKiB);
    tuning.staged_bytes = (tuning.take_bytes > 0 ? 64 : 128) * kKiB;
  } else {
    tuning.staged_bytes = std::min(largest_block, topology.l2_bytes / 4);
  }
  tuning.chunk_bytes = std::min(largest_block, 256 * kKiB);
  // A copy of so much takes about ten times as long as coming together. Ranks that share cores gain nothing by it.
  tuning.pipeline_bytes = ranks_share_cores ? tuning.chunk_bytes : std::min(tuning.chunk_bytes, 32 * kKiB);
  tuning.prefetch_bytes = ranks_share_cores ? 0 : 8 * kKiB;
  tuning.claim_bytes = 16 * kKiB;
  // Where L2 is small, half of what L3 has for a rank's send and receive buffers, as far as that was measured to gain.
  constexpr std::size_t kLeastCached = 8192 * kKiB;
  auto const half_of_l3 = topology.l3_bytes / (2 * static_cast<std::size_t>(ranks));
  tuning.streaming_bytes = std::max(8 * topology.l2_bytes, std::min(kLeastCached, half_of_l3));
  // Buckets of gradients, 25 MB where PyTorch makes them, are read again only when those of the whole step have gone
  // through the caches.
  constexpr std::size_t kMostCached = 16384 * kKiB;
  tuning.most_cached_bytes = std::min(kMostCached, topology.l3_bytes / static_cast<std::size_t>(ranks));

  constexpr int kSpins = 2000;    // about 50 µs with pauses
  constexpr int kGlances = 1000;  // without pauses: about twice as long as to change ranks on a core
  if (!ranks_share_cores)
    tuning.inline_patience = {.spins = kSpins, .yields = 20};
  else
    tuning.inline_patience = {.glances = kGlances, .yields = 200, .late = Yielder::late_of(ranks, cores)};
  // A communication thread polls for long only on a core that computation leaves free. Elsewhere it polls as long as a
  // peer takes that is at the same call: otherwise calls that follow one another at once would each put both to sleep.
  if (!ranks_share_cores) tuning.stream_patience = {.spins = cores >= 2 * ranks ? kSpins : kFewSpins};
  if (config.spin) {
    tuning.inline_patience.spins = static_cast<int>(config.spin->count() * 40);
    tuning.inline_patience.glances = 0;
    tuning.stream_patience.spins = tuning.inline_patience.spins;
  }
  return tuning;
}

}  // namespace weft::shm
