#include "collectives/shm/staging_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <utility>

namespace weft::shm {
namespace {

struct Block {
  std::size_t begin;
  std::size_t end;
};

/// Bytes of each rank, of which some are no whole blocks.
class StagingRingTest : public testing::TestWithParam<std::size_t> {
 protected:
  std::size_t const bytes = GetParam();
  StagingRing ring{nullptr, bytes};
  std::size_t const largest = ring.max_block();
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
          << "call " << i << ": [" << block.begin << ", " << block.end << ") on [" << other.begin << ", " << other.end
          << ")";
    }
    last.push_back(block);
    if (last.size() > StagingRing::kBlocks - 2) last.pop_front();
  }
}

TEST_P(StagingRingTest, RotatesThroughAllOfIt) {
  std::size_t furthest = 0;
  for (int i = 0; i < 10000; ++i) furthest = std::max(furthest, ring.take(512) + 512);
  EXPECT_GT(furthest, bytes - 512) << "no line is to be staged again soon";
}

TEST_P(StagingRingTest, ForgetsWhatWasTaken) {
  auto const take_two = [&] { return std::pair(ring.take(64), ring.take(largest)); };
  auto const first = take_two();
  EXPECT_NE(first, take_two());
  ring.reset();
  EXPECT_EQ(first, take_two());
}

INSTANTIATE_TEST_SUITE_P(Sizes, StagingRingTest,
                         testing::Values(std::size_t{64} << 10, std::size_t{192} << 10,
                                         (std::size_t{384} << 10) + kLine));

}  // namespace
}  // namespace weft::shm
