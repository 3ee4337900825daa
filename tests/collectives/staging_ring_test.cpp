#include "collectives/shm/staging_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <tuple>
#include <utility>

namespace weft::shm {
namespace {

struct Block {
  std::size_t begin;
  std::size_t end;
};

/// Bytes of each rank, and whether ranks take turns: with a little ring, too little for one, and no whole blocks.
class StagingRingTest : public testing::TestWithParam<std::tuple<std::size_t, bool>> {
 protected:
  std::size_t const bytes = std::get<0>(GetParam());
  bool const closely = std::get<1>(GetParam());
  std::size_t const largest = StagingRing::max_block(bytes, closely);
  bool const has_little = closely && bytes >= std::size_t{192} << 10;
  StagingRing ring{nullptr, bytes, closely};
};

TEST_P(StagingRingTest, ABlockStaysUntouchedWhileTheNextOnesAreTaken) {
  auto const seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::deque<Block> last;
  for (int i = 0; i < 20000; ++i) {
    // As often small as large.
    auto const length = 1 + random() % std::max<std::size_t>(1, largest >> random() % 12);
    auto const begin = ring.take(length);
    Block const block{begin, begin + length};
    ASSERT_EQ(0U, begin % kLine);
    ASSERT_LE(block.end, bytes);
    for (auto const& other : last) {
      ASSERT_TRUE(block.end <= other.begin || other.end <= block.begin)
          << "call " << i << ": [" << block.begin << ", " << block.end << ") on [" << other.begin << ", " << other.end;
    }
    last.push_back(block);
    if (last.size() > StagingRing::kBlocks - 2) last.pop_front();
  }
}

TEST_P(StagingRingTest, SmallBlocksComeBackToFewPagesWhereRanksTakeTurns) {
  std::size_t furthest = 0;
  for (int i = 0; i < 10000; ++i) furthest = std::max(furthest, ring.take(512) + 512);
  auto const little = StagingRing::kBlocks * StagingRing::kMostLittle;
  if (has_little) {
    EXPECT_LE(furthest, little);
  } else {
    EXPECT_GT(furthest, bytes - 512) << "through all of it, so that no line is staged again soon";
  }
  furthest = 0;
  auto nearest = bytes;
  for (int i = 0; i < 100; ++i) {
    auto const offset = ring.take(largest);
    nearest = std::min(nearest, offset);
    furthest = std::max(furthest, offset + largest);
  }
  EXPECT_EQ(has_little ? little : 0, nearest);
  EXPECT_GT(furthest, bytes - largest);
}

TEST_P(StagingRingTest, ForgetsWhatWasTaken) {
  auto const take_two = [&] { return std::pair(ring.take(64), ring.take(largest)); };
  auto const first = take_two();
  EXPECT_NE(first, take_two());
  ring.reset();
  EXPECT_EQ(first, take_two());
}

INSTANTIATE_TEST_SUITE_P(Sizes, StagingRingTest,
                         testing::Combine(testing::Values(std::size_t{64} << 10, std::size_t{192} << 10,
                                                          (std::size_t{384} << 10) + kLine),
                                          testing::Bool()));

}  // namespace
}  // namespace weft::shm
