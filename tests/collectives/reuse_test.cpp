#include "collectives/shm/reuse.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <unordered_map>
#include <vector>

#include "harness/ranks.hpp"

namespace weft::shm {
namespace {

std::byte memory[1 << 16];

TEST(Reuse, ABufferThatIsNotKnownIsAsFarAwayAsItIsLong) {
  Reuse reuse;
  EXPECT_EQ(reuse.distance(memory, 1000), 1000U);
  EXPECT_EQ(reuse.distance(memory + 64, 500), 500U);
  EXPECT_EQ(reuse.distance(nullptr, 7), 7U);
}

TEST(Reuse, ALoopOverOneBufferFindsItAtOnce) {
  Reuse reuse;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(reuse.distance(memory, 1000), 1000U);
}

TEST(Reuse, CountsWhatLiesBetween) {
  Reuse reuse;
  reuse.distance(memory, 1000);
  reuse.distance(memory + 64, 20);
  reuse.distance(memory + 128, 3);
  EXPECT_EQ(reuse.distance(memory, 1000), 1023U);
  EXPECT_EQ(reuse.distance(memory + 128, 3), 1003U);
}

TEST(Reuse, ALongerResultCountsItself) {
  Reuse reuse;
  reuse.distance(memory, 10);
  EXPECT_EQ(reuse.distance(memory, 5000), 5000U);
  EXPECT_EQ(reuse.distance(memory, 10), 5000U);
}

TEST(Reuse, IsNeverFurtherThanTheTruthAndSeldomNearer) {
  constexpr auto kSeed = 20261127U;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  Reuse reuse;
  std::unordered_map<void const*, std::uint64_t> last;
  std::uint64_t written = 0;
  int known = 0;
  int exact = 0;
  for (int i = 0; i < 20'000; ++i) {
    void const* const buffer = memory + std::uniform_int_distribution<>(0, 199)(random) * 320;
    auto const bytes = std::uniform_int_distribution<std::size_t>(1, 1 << 20)(random);
    auto const before = last.find(buffer);
    auto const since = before == last.end() ? 0 : written - before->second;
    auto const found = reuse.distance(buffer, bytes);
    auto const truth = std::max<std::uint64_t>(since, bytes);
    ASSERT_LE(found, truth);
    ASSERT_GE(found, bytes);
    if (before != last.end()) {
      ++known;
      if (found == truth) ++exact;
    }
    last[buffer] = written;
    written += bytes;
  }
  EXPECT_GT(exact, known * 3 / 4);  // 200 tensors share 1,024 entries
}

/// As a training step does: together the results are more than any cache that Weft reckons with, each is much less.
struct ManyBuffers : testing::TestWithParam<bool> {
  static constexpr std::size_t kBuffers = 24;
  static constexpr std::size_t kCount = 300'006;  // f32, of all ranks' parts; 1.2 MB, not in whole lines

  struct Pair {
    Buffer send;
    Buffer recv;
  };

  static std::vector<Pair> make(Communicator& world, bool symmetric) {
    auto const one = [&] {
      return symmetric ? world.allocate(kCount, DataType::f32) : Buffer::host(kCount, DataType::f32);
    };
    std::vector<Pair> pairs;
    for (std::size_t i = 0; i < kBuffers; ++i) pairs.push_back({one(), one()});
    return pairs;
  }

  static float value(int rank, std::size_t buffer, int round, std::size_t i) {
    return static_cast<float>(static_cast<int>(i % 97) + 100 * rank + 7 * static_cast<int>(buffer) + round);
  }
};

TEST_P(ManyBuffers, HoldTheirResults) {
  test::run_thread_ranks(2, [](Communicator& world) {
    auto const rank = world.rank();
    auto const part = kCount / 2;
    auto const mine = static_cast<std::size_t>(rank) * part;
    auto const pairs = make(world, GetParam());
    auto const each = [&](int round, auto const& call, auto const& wanted, std::size_t results) {
      for (std::size_t b = 0; b < kBuffers; ++b) {
        auto const send = pairs[b].send.as<float>();
        for (std::size_t i = 0; i < kCount; ++i) send[i] = value(rank, b, round, i);
        std::fill(pairs[b].recv.as<float>().begin(), pairs[b].recv.as<float>().end(), -1.0F);
      }
      for (auto const& pair : pairs) call(pair.send.view(), pair.recv.view());
      for (std::size_t b = 0; b < kBuffers; ++b) {
        auto const recv = pairs[b].recv.as<float>();
        for (std::size_t i = 0; i < results; ++i) ASSERT_EQ(recv[i], wanted(b, i)) << "buffer " << b << ", " << i;
        for (std::size_t i = results; i < kCount; ++i) ASSERT_EQ(recv[i], -1.0F) << "behind the result";
      }
    };
    for (int round = 0; round < 2; ++round) {
      each(
          round, [&](auto send, auto recv) { world.all_reduce(send, recv, ReduceOp::sum); },
          [&](auto b, auto i) { return value(0, b, round, i) + value(1, b, round, i); }, kCount);
      each(
          round, [&](auto send, auto recv) { world.reduce_scatter(send, recv.slice(0, part), ReduceOp::sum); },
          [&](auto b, auto i) { return value(0, b, round, mine + i) + value(1, b, round, mine + i); }, part);
      each(
          round, [&](auto send, auto recv) { world.all_gather(send.slice(0, part), recv); },
          [&](auto b, auto i) { return value(i < part ? 0 : 1, b, round, i % part); }, kCount);
      each(
          round, [&](auto send, auto recv) { world.all_to_all(send, recv); },
          [&](auto b, auto i) { return value(i < part ? 0 : 1, b, round, mine + i % part); }, kCount);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Memory, ManyBuffers, testing::Bool(),
                         [](auto const& parameter) { return parameter.param ? "symmetric" : "private"; });

}  // namespace
}  // namespace weft::shm
