// Groups give, bit for bit, what the same calls give by themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "collectives/planned_calls.hpp"
#include "harness/ranks.hpp"
#include "harness/tally.hpp"

namespace weft::test {
namespace {

void compare_with_single_calls(int ranks, std::uint64_t seed, bool on_stream) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed << ", on_stream " << on_stream);
  run_thread_ranks(ranks, [&](Communicator& world) {
    Plan plan(seed);
    for (int i = 0; i < kPlans; ++i) {
      auto const calls = plan.calls(ranks);
      auto const bytes = arena_bytes(calls, ranks);
      auto const symmetric = plan.coin();
      auto grouped = symmetric ? world.allocate(bytes, DataType::u8) : Buffer::host(bytes, DataType::u8);
      auto single = Buffer::host(bytes, DataType::u8);
      auto* const a = static_cast<std::byte*>(grouped.view().data);
      auto* const b = static_cast<std::byte*>(single.view().data);
      std::memset(a, 7, bytes);
      std::memset(b, 7, bytes);
      make_calls(world, calls, b, seed + static_cast<std::uint64_t>(i) * 100, {});
      CollectiveOptions how;
      if (on_stream) how.stream = Stream::cpu();
      Group group(world, how);
      make_calls(world, calls, a, seed + static_cast<std::uint64_t>(i) * 100, {});
      group.end().wait();
      ASSERT_EQ(std::memcmp(a, b, bytes), 0)
          << "case " << i << (symmetric ? ", symmetric" : ", private") << ", " << calls.size()
          << " calls, first of kind " << static_cast<int>(calls[0].kind);
    }
  });
}

TEST(Group, GivesWhatSingleCallsGive) {
  std::uint64_t seed = 20261121;
  for (int const ranks : {1, 2, 3, 5}) {
    compare_with_single_calls(ranks, seed++, false);
    compare_with_single_calls(ranks, seed++, true);
  }
}

BufferView slice(BufferView const& whole, std::size_t first, std::size_t count) {
  return {static_cast<std::byte*>(whole.data) + first * size_of(whole.dtype), count, whole.dtype};
}

TEST(Group, ManySymmetricReduceScatters) {
  constexpr std::size_t kCalls = 980;
  run_thread_ranks(2, [&](Communicator& world) {
    for (std::size_t const count : {std::size_t{32}, std::size_t{1024}}) {
      auto send = world.allocate(kCalls * 2 * count, DataType::f32);
      auto recv = world.allocate(kCalls * count, DataType::f32);
      auto* const values = static_cast<float*>(send.view().data);
      for (std::size_t i = 0; i < kCalls * 2 * count; ++i) values[i] = static_cast<float>(i % 1000 + world.rank());
      Group group(world);
      for (std::size_t i = 0; i < kCalls; ++i) {
        world.reduce_scatter(slice(send.view(), i * 2 * count, 2 * count), slice(recv.view(), i * count, count),
                             ReduceOp::sum);
      }
      group.end();
      auto const* const sums = static_cast<float const*>(recv.view().data);
      for (std::size_t i = 0; i < kCalls * count; ++i) {
        auto const source = i / count * 2 * count + static_cast<std::size_t>(world.rank()) * count + i % count;
        ASSERT_EQ(sums[i], static_cast<float>(2 * (source % 1000) + 1));
      }
    }
  });
}

/// In place or not, and how long to wait, is each rank's own affair: what merges with what must not follow from it.
TEST(Group, RanksMayDifferInWhatIsTheirOwn) {
  constexpr std::size_t kSizes[] = {512, 500, 256, 200, 200, 1, 513};  // around what merges, and merges together
  constexpr int kGroups = 30;
  run_thread_ranks(3, [&](Communicator& world) {
    auto const ranks = static_cast<std::size_t>(world.size());
    auto const me = static_cast<std::size_t>(world.rank());
    std::mt19937_64 alike(7);
    std::mt19937_64 own(100 + me);
    for (int i = 0; i < kGroups; ++i) {
      struct One {
        std::size_t count;
        bool gathers;
        std::vector<float> whole;  // of all ranks' parts
        std::vector<float> part;
        bool in_place;
      };
      std::vector<One> calls(300);
      for (auto& one : calls) {
        one.count = kSizes[alike() % 7 % (alike() % 8 == 0 ? 7 : 4)];
        one.gathers = alike() % 4 == 0;
        one.in_place = own() % 2 == 0;
        auto const value = static_cast<float>(alike() % 1000);
        one.whole.assign(ranks * one.count, value);
        one.part.assign(one.count, value + static_cast<float>(me));
        if (one.gathers && one.in_place) std::copy(one.part.begin(), one.part.end(), &one.whole[me * one.count]);
      }
      std::vector<float> first(calls.size());
      for (std::size_t k = 0; k < calls.size(); ++k) first[k] = calls[k].gathers ? 0 : calls[k].whole[0];
      Group group(world);
      for (auto& one : calls) {
        CollectiveOptions how;
        if (own() % 3 == 0) how.timeout = std::chrono::seconds(100);
        auto* const place = &one.whole[me * one.count];
        BufferView const part{one.in_place ? place : one.part.data(), one.count, DataType::f32};
        BufferView const whole{std::span(one.whole)};
        one.gathers ? world.all_gather(part, whole, how) : world.reduce_scatter(whole, part, ReduceOp::sum, how);
      }
      group.end();
      for (std::size_t k = 0; k < calls.size(); ++k) {
        auto const& one = calls[k];
        SCOPED_TRACE(testing::Message() << "group " << i << ", call " << k + 1 << " of " << one.count);
        if (one.gathers) {
          auto const mine = one.part[0] - static_cast<float>(me);
          for (std::size_t r = 0; r < ranks; ++r) ASSERT_EQ(one.whole[r * one.count], mine + static_cast<float>(r));
        } else {
          ASSERT_EQ(one.in_place ? one.whole[me * one.count] : one.part[0], 3 * first[k]);
        }
      }
    }
  });
}

TEST(Group, ItsTimeoutIsThatOfItsCalls) {
  Tally gave_up;
  run_thread_ranks(2, [&](Communicator& world) {
    float value = 1;
    BufferView const one{&value, 1, DataType::f32};
    Group group(world, {.timeout = std::chrono::milliseconds(200)});
    world.all_reduce(one, one, ReduceOp::sum);
    world.barrier();
    if (world.rank() == 1) gave_up.await(1);
    try {
      group.end();
      ADD_FAILURE() << "rank " << world.rank() << " met a rank that came after the timeout";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
    }
    gave_up.add();
  });
}

TEST(Group, NotOnACommunicatorThatWasMovedFrom) {
  run_thread_ranks(2, [](Communicator& world) {
    auto twin = world.duplicate(world.options());
    auto const other = std::move(twin);
    EXPECT_THROW(static_cast<void>(Group(twin, {})), Error);  // NOLINT(bugprone-use-after-move): what is tested
  });
}

TEST(Group, OutlivesNothing) {
  run_thread_ranks(2, [](Communicator& world) {
    auto twin = std::make_unique<Communicator>(world.duplicate(world.options()));
    float value = 1;
    BufferView const one{&value, 1, DataType::f32};
    Group group(*twin);
    auto const work = twin->all_reduce(one, one, ReduceOp::sum);
    twin.reset();
    EXPECT_THROW(work.wait(), Error);
    EXPECT_THROW(group.end(), Error);
  });
}

}  // namespace
}  // namespace weft::test
