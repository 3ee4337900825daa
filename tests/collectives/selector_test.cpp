// The table of algorithms: which sizes and kinds of memory get which.
#include "collectives/shm/selector.hpp"

#include <gtest/gtest.h>

#include "collectives/shm/feeds.hpp"
#include "collectives/shm/staging_ring.hpp"

namespace weft::shm {
namespace {

constexpr std::size_t kKiB = 1024;

Tuning tuning(int ranks, bool share_cores, bool small_staging = false, Config const& config = {}) {
  Topology topology;
  topology.l2_bytes = 1024 * kKiB;
  topology.l3_bytes = 32 * 1024 * kKiB;
  topology.cores = 8;
  return make_tuning(topology, config, ranks, share_cores ? 2 : 8, share_cores, small_staging);
}

constexpr Collective kEvery[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                 Collective::broadcast,  Collective::reduce,         Collective::gather,
                                 Collective::scatter,    Collective::pull,           Collective::scan};

TEST(Selector, EverySizeHasAChoiceThatItsMemoryAllows) {
  for (bool const share : {false, true}) {
    for (int const ranks : {1, 2, 3, 8, 64}) {
      auto const selector = Selector::derive(tuning(ranks, share), ranks);
      for (auto const collective : kEvery) {
        for (std::size_t bytes = 1; bytes < (std::size_t{1} << 40); bytes = bytes * 3 + 1) {
          if (auto const* small = selector.by_size(collective, bytes)) {
            EXPECT_LE(bytes, small->up_to);
            EXPECT_NE(Algorithm::direct, small->algorithm);
            EXPECT_GT(small->chunk_bytes, 0U);
            continue;
          }
          auto const& other = selector.by_memory(collective, bytes, Memory::other);
          EXPECT_NE(Algorithm::direct, other.algorithm);
          EXPECT_NE(Algorithm::direct_claimed, other.algorithm);
          EXPECT_GT(other.chunk_bytes, 0U);
          for (auto const memory : {Memory::symmetric, Memory::in_place}) {
            EXPECT_LE(bytes, selector.by_memory(collective, bytes, memory).up_to);
            EXPECT_EQ(Choice::kUnlimited, selector.by_memory(collective, 1ULL << 40, memory).up_to);
          }
        }
      }
    }
  }
}

TEST(Selector, SmallStagingIsLittleAndNeverMoreThanAskedFor) {
  EXPECT_EQ(3072 * kKiB, tuning(2, false).ring_bytes);
  Config little;
  little.staging_bytes = 128 * kKiB;
  Config much;
  much.staging_bytes = 64 * 1024 * kKiB;
  for (bool const share : {false, true}) {
    EXPECT_EQ(384 * kKiB, tuning(2, share, true).ring_bytes);
    EXPECT_EQ(384 * kKiB, tuning(2, share, true, much).ring_bytes);
    EXPECT_EQ(128 * kKiB, tuning(2, share, true, little).ring_bytes);
    for (int const ranks : {2, 3, 64}) {
      auto const small = tuning(ranks, share, true);
      auto const block = StagingRing(nullptr, small.ring_bytes).max_block();
      for (auto const bytes : {small.one_phase_bytes, small.chunk_bytes, small.pipeline_bytes}) EXPECT_LE(bytes, block);
    }
  }
}

TEST(Selector, UpToSixteenRanksThatShareCoresStageInLongerBlocks) {
  for (int const ranks : {2, 16}) EXPECT_EQ(768 * kKiB, tuning(ranks, true).ring_bytes);
  EXPECT_EQ(384 * kKiB, tuning(17, true).ring_bytes);
  EXPECT_EQ(128 * kKiB, tuning(4, true).chunk_bytes);
}

TEST(Selector, FeedsAreLongerThanL2) {
  EXPECT_EQ(256, tuning(2, false).feed_places) << "of 8 KiB, for 1 MiB";
  EXPECT_EQ(256, tuning(4, true).feed_places);
  EXPECT_EQ(256, tuning(2, false).places_to_root);
  EXPECT_EQ(Feeds::kLeastPlaces, tuning(4, true).places_to_root)
      << "several givers' places stay in the caches they share";
  EXPECT_EQ(Feeds::kLeastPlaces, tuning(9, false).feed_places) << "that would be much memory";
  EXPECT_EQ(Feeds::kLeastPlaces, tuning(2, false, true).feed_places) << "small staging";
  Config little;
  little.staging_bytes = 256 * kKiB;
  EXPECT_EQ(Feeds::kLeastPlaces, tuning(2, false, false, little).feed_places) << "as was asked for";
  Topology topology;
  EXPECT_EQ(Feeds::kLeastPlaces, make_tuning(topology, Config{}, 2, 2, false).feed_places)
      << "nothing is known of caches";
  topology.l2_bytes = std::size_t{1} << 30;
  topology.l3_bytes = std::size_t{4} << 30;
  EXPECT_EQ(Feeds::kMostPlaces, make_tuning(topology, Config{}, 2, 2, false).feed_places);
}

TEST(Selector, FollowsRanksAndCores) {
  auto const two = Selector::derive(tuning(2, false), 2);
  EXPECT_EQ(Algorithm::swapped, two.by_size(Collective::all_reduce, 100)->algorithm);
  EXPECT_EQ(Algorithm::swapped, two.by_memory(Collective::pull, 1 << 30, Memory::other).algorithm);
  for (auto const rooted : {Collective::broadcast, Collective::gather, Collective::scatter, Collective::reduce}) {
    EXPECT_EQ(Algorithm::fed, two.by_size(rooted, 100)->algorithm);
    EXPECT_EQ(Algorithm::direct, two.by_memory(rooted, 1 << 30, Memory::symmetric).algorithm);
  }

  auto reading = tuning(2, false);
  EXPECT_EQ(Algorithm::swapped, two.by_memory(Collective::all_gather, 4 << 20, Memory::other).algorithm);
  reading.reads_peers = true;
  auto const readers = Selector::derive(reading, 2);
  for (auto const collective : {Collective::all_gather, Collective::pull}) {
    EXPECT_EQ(two.rules(collective), readers.rules(collective)) << "fetched only where that was measured to win";
  }
  for (auto const collective : {Collective::broadcast, Collective::gather, Collective::scatter}) {
    EXPECT_EQ(Algorithm::fed, readers.by_memory(collective, 1 << 30, Memory::other).algorithm);
  }
  EXPECT_EQ(nullptr, two.by_size(Collective::broadcast, 128 * kKiB + 1))
      << "two that copy at once beat one that copies";

  reading = tuning(4, false);
  EXPECT_EQ(Algorithm::fed,
            Selector::derive(reading, 4).by_memory(Collective::gather, 1 << 30, Memory::other).algorithm);
  reading.reads_peers = true;
  auto const four_readers = Selector::derive(reading, 4);
  for (auto const collective : {Collective::broadcast, Collective::gather, Collective::scatter}) {
    EXPECT_EQ(Algorithm::fed, four_readers.by_memory(collective, 2 << 20, Memory::other).algorithm);
    EXPECT_EQ(Algorithm::fetched, four_readers.by_memory(collective, 4 << 20, Memory::other).algorithm);
  }

  auto const four = Selector::derive(tuning(4, false), 4);
  EXPECT_EQ(Algorithm::one_phase, four.by_size(Collective::all_reduce, 16 * kKiB)->algorithm);
  EXPECT_EQ(Algorithm::two_phase, four.by_size(Collective::all_reduce, 16 * kKiB + 1)->algorithm);
  EXPECT_EQ(Algorithm::fed, four.by_size(Collective::reduce, 16 * kKiB)->algorithm);
  EXPECT_EQ(Algorithm::two_phase, four.by_size(Collective::reduce, 16 * kKiB + 1)->algorithm);
  EXPECT_EQ(Algorithm::direct, four.by_memory(Collective::all_reduce, 1 << 30, Memory::symmetric).algorithm);

  auto const crowded = Selector::derive(tuning(4, true), 4);
  EXPECT_EQ(Algorithm::claimed, crowded.by_memory(Collective::all_reduce, 1 << 20, Memory::other).algorithm);
  EXPECT_EQ(Algorithm::direct_claimed, crowded.by_memory(Collective::all_reduce, 1 << 20, Memory::symmetric).algorithm);
  for (auto const collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::pull}) {
    ASSERT_NE(nullptr, crowded.by_size(collective, 128 * kKiB)) << "one block, without asking whose memory it is";
    EXPECT_EQ(collective == Collective::all_reduce ? Algorithm::claimed : Algorithm::staged,
              crowded.by_size(collective, 128 * kKiB)->algorithm);
    EXPECT_EQ(128 * kKiB, crowded.by_size(collective, 128 * kKiB)->chunk_bytes) << to_string(collective);
    EXPECT_EQ(nullptr, crowded.by_size(collective, 128 * kKiB + 1)) << to_string(collective);
  }
  EXPECT_EQ(Algorithm::staged, crowded.by_size(Collective::all_gather, 1024 * kKiB)->algorithm)
      << "to stage takes one turn of every rank, to reach their buffers takes two";
  EXPECT_EQ(nullptr, crowded.by_size(Collective::all_gather, 1024 * kKiB + 1));
  for (auto const to_or_from_all : {Collective::broadcast, Collective::reduce}) {
    EXPECT_EQ(Algorithm::fed, crowded.by_size(to_or_from_all, 8192 * kKiB)->algorithm);
    EXPECT_EQ(nullptr, crowded.by_size(to_or_from_all, 8192 * kKiB + 1)) << "more than the caches hold";
  }
  auto const nine = Selector::derive(tuning(9, true), 9);
  EXPECT_EQ(nullptr, nine.by_size(Collective::reduce, 16 * kKiB + 1));
  auto const sixteen = Selector::derive(tuning(16, true), 16);
  EXPECT_NE(nullptr, sixteen.by_size(Collective::all_reduce, 64 * kKiB));
  EXPECT_EQ(nullptr, sixteen.by_size(Collective::all_reduce, 64 * kKiB + 1)) << "all that is staged leaves the caches";
  EXPECT_NE(nullptr, sixteen.by_size(Collective::reduce_scatter, 128 * kKiB));
  auto const seventeen = Selector::derive(tuning(17, true), 17);
  for (auto const reduction : {Collective::all_reduce, Collective::reduce_scatter})
    EXPECT_EQ(nullptr, seventeen.by_size(reduction, 16 * kKiB + 1)) << "nothing is won by staging there";
  EXPECT_EQ(Algorithm::fed, crowded.by_size(Collective::gather, 512 * kKiB)->algorithm);
  EXPECT_EQ(Algorithm::fed, crowded.by_size(Collective::scatter, 64 * kKiB)->algorithm);
  EXPECT_EQ(nullptr, crowded.by_size(Collective::scatter, 64 * kKiB + 1)) << "two copies of that are too much for L2";
  auto const eight = Selector::derive(tuning(8, true), 8);
  ASSERT_NE(nullptr, eight.by_size(Collective::scatter, 256 * kKiB)) << "more turns";
  EXPECT_EQ(nullptr, eight.by_size(Collective::scatter, 256 * kKiB + 1));
  ASSERT_NE(nullptr, eight.by_size(Collective::broadcast, 4096 * kKiB));
  EXPECT_EQ(nullptr, eight.by_size(Collective::broadcast, 4096 * kKiB + 1));
  EXPECT_NE(nullptr, nine.by_size(Collective::broadcast, 1024 * kKiB));
  EXPECT_EQ(nullptr, nine.by_size(Collective::broadcast, 1024 * kKiB + 1)) << "not measured";
  EXPECT_NE(nullptr, eight.by_size(Collective::all_gather, 2048 * kKiB));
  EXPECT_EQ(Algorithm::fed, crowded.by_memory(Collective::reduce, 1 << 30, Memory::other).algorithm)
      << "the root combines while the other core's ranks give";
  auto const long_reduce = [](Tuning const& of, int ranks) {
    return Selector::derive(of, ranks).by_memory(Collective::reduce, 1 << 30, Memory::other).algorithm;
  };
  EXPECT_EQ(Algorithm::fed, long_reduce(tuning(8, true), 8));
  EXPECT_EQ(Algorithm::claimed, long_reduce(tuning(9, true), 9)) << "one core alone could not keep up";
  reading = tuning(4, true);
  reading.cores = 3;
  EXPECT_EQ(Algorithm::claimed, long_reduce(reading, 4)) << "three cores combine faster than one";
  reading = tuning(4, true);
  reading.reads_peers = true;
  auto const crowded_readers = Selector::derive(reading, 4);
  EXPECT_EQ(Algorithm::fed, crowded_readers.by_memory(Collective::broadcast, 1 << 30, Memory::other).algorithm);
  EXPECT_EQ(Algorithm::fed, crowded_readers.by_memory(Collective::scatter, 1 << 20, Memory::other).algorithm);
  EXPECT_EQ(Algorithm::fetched, crowded_readers.by_memory(Collective::scatter, (1 << 20) + 1, Memory::other).algorithm);
  EXPECT_EQ(Algorithm::fed, crowded_readers.by_memory(Collective::gather, 1 << 30, Memory::other).algorithm);
  reading = tuning(9, true);
  reading.reads_peers = true;
  auto const nine_readers = Selector::derive(reading, 9);
  EXPECT_EQ(Algorithm::fetched, nine_readers.by_memory(Collective::gather, 1 << 30, Memory::other).algorithm)
      << "one core alone could not keep up";

  auto const packed = Selector::derive(tuning(64, true), 64);
  EXPECT_EQ(Algorithm::one_phase, packed.by_size(Collective::all_reduce, kKiB)->algorithm);
  EXPECT_EQ(Algorithm::claimed, packed.by_size(Collective::all_reduce, 2 * kKiB)->algorithm)
      << "64 ranks that each read 64 buffers take longer than coming together once more";
}

TEST(Selector, ResultsStayInAnL3ThatHasRoomForThem) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  auto const streaming = [&](std::size_t l2_kib, std::size_t l3_mib, int ranks) {
    Topology topology;
    topology.l2_bytes = l2_kib << 10;
    topology.l3_bytes = l3_mib * kMiB;
    return make_tuning(topology, Config{}, ranks, 8, false).streaming_bytes / kMiB;
  };
  EXPECT_EQ(16, streaming(2048, 260, 2)) << "8 x L2";
  EXPECT_EQ(8, streaming(512, 32, 2)) << "half a rank's share of L3";
  EXPECT_EQ(4, streaming(512, 32, 4)) << "no more than that, be it 8 x L2";
  EXPECT_EQ(4, streaming(512, 8, 2)) << "not less than 8 x L2";
  EXPECT_EQ(8, streaming(512, 256, 2)) << "more was not measured to gain";
}

TEST(Selector, LinesAreTakenWhereCachesKeepThemWithTheirWriters) {
  auto const take_bytes = [](bool has_owned_lines, int cores) {
    Topology topology;
    topology.has_owned_lines = has_owned_lines;
    return make_tuning(topology, Config{}, 2, cores, cores < 2).take_bytes;
  };
  EXPECT_EQ(Choice::kUnlimited, take_bytes(true, 2));
  EXPECT_EQ(0, take_bytes(false, 2)) << "not known to gain; ranks with cores of their own measure it";
  EXPECT_EQ(0, take_bytes(true, 1)) << "they share all caches";
}

TEST(Selector, OnlyRanksThatShareCoresGlanceAtThoseElsewhere) {
  EXPECT_EQ(0, tuning(2, false).inline_patience.glances) << "they spin";
  EXPECT_GT(tuning(4, true).inline_patience.glances, 0);
  EXPECT_EQ(0, tuning(4, true).stream_patience.glances) << "computation wants the core";
  Config asleep;
  asleep.spin = std::chrono::microseconds(0);
  EXPECT_EQ(0, tuning(4, true, false, asleep).inline_patience.glances);
}

TEST(Selector, TheMoreRanksShareACoreTheLongerAYieldMayTake) {
  EXPECT_EQ(Yielder::kLate, tuning(2, false).inline_patience.late);
  EXPECT_EQ(Yielder::kLate, tuning(8, true).inline_patience.late) << "longer, and another program would go unnoticed";
  EXPECT_EQ(8 * Yielder::kLate, tuning(64, true).inline_patience.late);
  EXPECT_EQ(Yielder::kLate, Yielder::late_of(15, 2));
  EXPECT_EQ(2 * Yielder::kLate, Yielder::late_of(16, 2));
  EXPECT_EQ(Yielder::kLate, Yielder::late_of(4, 0)) << "of cores that nobody could count";
}

TEST(Selector, ChoicesBeginWhereSmallerOnesEnd) {
  auto const four = Selector::derive(tuning(4, false), 4);
  auto const above = [&](Memory memory, Choice const& choice) {
    return four.above(Collective::all_reduce, memory, choice);
  };
  EXPECT_EQ(0U, above(Memory::any, *four.by_size(Collective::all_reduce, 1)));
  EXPECT_EQ(16 * kKiB, above(Memory::any, *four.by_size(Collective::all_reduce, 17 * kKiB)));
  auto const& direct = four.by_memory(Collective::all_reduce, 1 << 30, Memory::symmetric);
  EXPECT_EQ(four.rules(Collective::all_reduce).small[1].up_to, above(Memory::symmetric, direct));
  auto const crowded = Selector::derive(tuning(4, true), 4);
  EXPECT_EQ(0U, crowded.above(Collective::reduce, Memory::any, *crowded.by_size(Collective::reduce, 1)))
      << "what is as short and comes later is never taken";
}

}  // namespace
}  // namespace weft::shm
