#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "weft/bucketer.hpp"
#include "weft/error.hpp"
#include "weft/memory.hpp"

namespace weft::test {
namespace {

/// Elements [first, last) of bucket `b` are `rank`'s part.
struct Part {
  std::size_t first;
  std::size_t last;
};

Part part_of(Bucket const& bucket, int rank, int ranks) {
  std::size_t const count = bucket.count / static_cast<std::size_t>(ranks);
  return {count * static_cast<std::size_t>(rank), count * (static_cast<std::size_t>(rank) + 1)};
}

/// Compares what this rank owns with the all_reduced gradients of `reference`; returns how many elements it was.
std::size_t compare_owned(Communicator const& world, Bucketer const& sharded, Bucketer const& reference) {
  std::size_t compared = 0;
  for (Bucket const& bucket : sharded.plan().buckets) {
    Part const part = part_of(bucket, world.rank(), world.size());
    for (BucketSlot const& slot : bucket.slots) {
      for (std::size_t i = 0; i < slot.count; ++i) {
        if (slot.offset + i < part.first || slot.offset + i >= part.last) continue;
        EXPECT_EQ(floats(sharded.gradient(slot.tensor))[i], floats(reference.gradient(slot.tensor))[i]);
        ++compared;
      }
    }
  }
  return compared;
}

class ShardedBuckets : public testing::TestWithParam<BucketCollective> {};

TEST_P(ShardedBuckets, OwnedPartsHaveTheBitsOfAllReduce) {
  for (int const ranks : {1, 2, 3, 4}) {
    for (bool const rebuild : {true, false}) {
      run_thread_ranks(ranks, [&](Communicator& world) {
        std::vector<TensorSpec> const specs = model(17, 40);
        Communicator other = world.duplicate({});
        BucketerOptions options{.limits = {3000, 20000}, .rebuild = rebuild, .stream = {}};
        Bucketer reference(other, specs, options);
        options.collective = GetParam();
        Bucketer sharded(world, specs, options);
        for (std::size_t step = 0; step < 4; ++step) {
          for (std::size_t const t : shuffled(specs.size(), step + 10 * static_cast<std::size_t>(world.rank()))) {
            if (t == 3 && step % 2 == 1) continue;  // counts as zero
            for (Bucketer* const bucketer : {&reference, &sharded}) {
              write_gradient(*bucketer, world.rank(), step, t);
              bucketer->mark_ready(t);
            }
          }
          reference.finish();
          sharded.finish();
          std::array<std::uint64_t, 1> compared{compare_owned(world, sharded, reference)};
          world.all_reduce(std::span<std::uint64_t>(compared), std::span<std::uint64_t>(compared), ReduceOp::sum);
          std::size_t elements = 0;
          for (TensorSpec const& spec : specs) elements += spec.count;
          ASSERT_EQ(compared[0], elements);  // every element has one owner
        }
      });
    }
  }
}

TEST_P(ShardedBuckets, RePlanBeforeAnythingIsSent) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<TensorSpec> const specs = model(12, 41);
    Bucketer bucketer(world, specs, {.limits = {1, 1}, .collective = GetParam(), .stream = {}});
    std::vector<std::size_t> const order = shuffled(specs.size(), 9);
    for (std::size_t const t : order) {
      write_gradient(bucketer, world.rank(), 0, t);
      bucketer.mark_ready(t);
    }
    EXPECT_EQ(bucketer.generation(), 0U);
    bucketer.finish_launching();
    EXPECT_EQ(bucketer.generation(), 1U);
    EXPECT_EQ(bucketer.plan(), BucketPlan::build(specs, order, {1, 1}, 2));
    bucketer.finish();
    EXPECT_EQ(bucketer.timings().size(), bucketer.plan().buckets.size());
    EXPECT_EQ(bucketer.generation(), 1U);
  });
}

INSTANTIATE_TEST_SUITE_P(Collectives, ShardedBuckets,
                         testing::Values(BucketCollective::reduce_scatter,
                                         BucketCollective::reduce_scatter_and_release));

TEST(BucketerSharded, DifferentCollectivesAreRefused) {
  run_thread_ranks(2, [](Communicator& world) {
    auto const mine = world.rank() == 0 ? BucketCollective::all_reduce : BucketCollective::reduce_scatter;
    try {
      Bucketer bucketer(world, model(3, 1), {.collective = mine, .stream = {}});
      ADD_FAILURE() << "accepted";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_NE(std::string(error.what()).find("rank 1 differs from rank 0: options.collective"), std::string::npos)
          << error.what();
    }
  });
}

/// Bytes of `view`'s whole pages that are in memory.
std::size_t resident_bytes(BufferView view) {
  auto const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto const first = (reinterpret_cast<std::uintptr_t>(view.data) + page - 1) / page * page;
  auto const last = (reinterpret_cast<std::uintptr_t>(view.data) + view.bytes()) / page * page;
  std::vector<unsigned char> pages((last - first) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(first), last - first, pages.data()), 0);
  std::size_t resident = 0;
  for (unsigned char const flags : pages) resident += (flags & 1U) * page;
  return resident;
}

TEST(BucketerSharded, ReleaseGivesBackWhatOthersOwn) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = std::size_t{1} << 20;
  run_thread_ranks(kRanks, [](Communicator& world) {
    Bucketer bucketer(world, {{kCount}}, {.collective = BucketCollective::reduce_scatter_and_release, .stream = {}});
    BufferView const gradient = bucketer.gradient(0);
    for (std::size_t step = 0; step < 3; ++step) {
      write_gradient(bucketer, world.rank(), step, 0);
      EXPECT_GE(resident_bytes(gradient), gradient.bytes() - 8192);
      world.barrier();  // residency is of the memory, whoever maps it: all have looked
      bucketer.mark_ready(0);
      bucketer.finish();
      EXPECT_LE(resident_bytes(gradient), gradient.bytes() / kRanks + 8192);
      std::size_t const first = kCount / kRanks * static_cast<std::size_t>(world.rank());
      for (std::size_t i = 0; i < kCount; ++i) {
        bool const mine = i >= first && i < first + kCount / kRanks;
        ASSERT_NEAR(floats(gradient)[i], mine ? average(kRanks, step, 0, i) : 0.0, 2e-5);
      }
    }
  });
}

BucketerOptions in_turns(BucketLimits const& limits, bool rebuild = false) {
  return {.limits = limits,
          .rebuild = rebuild,
          .collective = BucketCollective::reduce_scatter_and_release,
          .come_and_go = true,
          .stream = {}};
}

TEST(BucketsInTurns, PartsHaveTheBitsOfAllReduce) {
  for (int const ranks : {1, 2, 3}) {
    for (bool const rebuild : {true, false}) {
      run_thread_ranks(ranks, [&](Communicator& world) {
        std::vector<TensorSpec> const specs = model(17, 42);
        Communicator other = world.duplicate({});
        Bucketer reference(other, specs, {.limits = {3000, 20000}, .rebuild = rebuild, .stream = {}});
        Bucketer sharded(world, specs, in_turns({3000, 20000}, rebuild));
        for (std::size_t step = 0; step < 6; ++step) {
          bool const micro = step % 3 == 1;  // adds up, so that all buckets are there at once
          for (Bucketer* const bucketer : {&reference, &sharded}) {
            bucketer->set_sync(!micro);
            for (std::size_t const t : shuffled(specs.size(), step + 10 * static_cast<std::size_t>(world.rank()))) {
              if (t == 3) continue;                  // counts as zero
              if (step % 3 == 2 && t > 8) continue;  // has the micro-step's alone
              write_gradient(*bucketer, world.rank(), step, t);
              bucketer->mark_ready(t);
            }
            bucketer->finish();
          }
          if (micro) continue;
          ASSERT_EQ(sharded.generation(), rebuild ? 1U : 0U);
          for (std::size_t b = 0; b < sharded.plan().buckets.size(); ++b) {
            Bucket const& bucket = sharded.plan().buckets[b];
            Part const part = part_of(bucket, world.rank(), world.size());
            std::vector<float> wanted(bucket.count);  // padding is zero
            for (BucketSlot const& slot : bucket.slots) {
              std::ranges::copy(floats(reference.gradient(slot.tensor)),
                                wanted.begin() + static_cast<long>(slot.offset));
            }
            for (std::size_t i = part.first; i < part.last; ++i) {
              ASSERT_EQ(floats(sharded.shard(b))[i - part.first], wanted[i]) << "bucket " << b << ", element " << i;
            }
          }
        }
      });
    }
  }
}

TEST(BucketsInTurns, FewArePresentAtATime) {
  constexpr std::size_t kCount = std::size_t{1} << 16;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  constexpr std::size_t kBuckets = 12;
  run_thread_ranks(2, [&](Communicator& world) {
    MemoryAccount const account;
    MemoryAccount::Binding const bound(account);
    Bucketer bucketer(world, std::vector<TensorSpec>(kBuckets, {kCount}), in_turns({1, 1}));
    std::size_t const before = account.usage(MemoryKind::communication).live;
    EXPECT_LE(before, kBytes);
    EXPECT_EQ(account.usage(MemoryKind::gradients).live, kBuckets * kBytes / 2);
    for (std::size_t step = 0; step < 3; ++step) {
      for (std::size_t t = kBuckets; t > 0; t -= 2) {  // two at once, however soon one has left
        for (std::size_t const one : {t - 1, t - 2}) write_gradient(bucketer, world.rank(), step, one);
        for (std::size_t const one : {t - 1, t - 2}) bucketer.mark_ready(one);
      }
      bucketer.finish();
      EXPECT_EQ(account.usage(MemoryKind::communication).live - before, 2 * kBytes);
    }
    bucketer.set_sync(false);
    for (std::size_t t = 0; t < kBuckets; ++t) write_gradient(bucketer, world.rank(), 3, t);
    EXPECT_EQ(account.usage(MemoryKind::communication).live - before, kBuckets * kBytes);
  });
}

TEST(BucketsInTurns, WhatIsSentIsNotThereAnyMore) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, {{100}, {100}}, in_turns({1, 1}));
    write_gradient(bucketer, world.rank(), 0, 1);
    bucketer.mark_ready(1);
    try {
      (void)bucketer.gradient(1);
      ADD_FAILURE() << "it is there";
    } catch (Error const& error) {
      EXPECT_NE(std::string(error.what()).find("gradients of bucket 0 of 2 are sent"), std::string::npos);
    }
    bucketer.finish();
    EXPECT_NE(bucketer.gradient(1).data, nullptr);
  });
}

}  // namespace
}  // namespace weft::test
