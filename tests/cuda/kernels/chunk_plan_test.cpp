#include "optim/cuda/chunk_plan.hpp"

#include <gtest/gtest.h>

#include <random>

#include "weft/error.hpp"

namespace weft::test {
namespace {

using cuda::ChunkRange;
using kernels::cuda::kChunk;

/// Every element of every tensor once, in order.
void expect_covers(std::vector<std::size_t> const& counts) {
  auto const plan = cuda::plan_chunks(counts);
  ASSERT_EQ(plan.of_tensor.size(), counts.size());
  std::size_t next_chunk = 0;
  for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
    auto const range = plan.of_tensor[tensor];
    ASSERT_EQ(range.first, next_chunk);
    std::size_t covered = 0;
    for (std::size_t k = range.first; k < range.first + range.count; ++k) {
      auto const& chunk = plan.chunks[k];
      ASSERT_EQ(chunk.tensor, tensor);
      ASSERT_EQ(chunk.first, covered);
      ASSERT_EQ(chunk.first % kChunk, 0U) << "chunks begin where their tensor's alignment holds";
      ASSERT_GE(chunk.count, 1U);
      ASSERT_LE(chunk.count, kChunk);
      covered += chunk.count;
    }
    ASSERT_EQ(covered, counts[tensor]);
    next_chunk += range.count;
  }
  EXPECT_EQ(next_chunk, plan.chunks.size());
}

TEST(ChunkPlanTest, CoversEveryElementOnce) {
  expect_covers({});
  expect_covers({0});
  expect_covers({0, 0, 1, 0});
  expect_covers({kChunk - 1, kChunk, kChunk + 1, 0, 7});
  expect_covers(std::vector<std::size_t>(10'000, 3));
  std::mt19937_64 random(5);
  std::vector<std::size_t> counts(500);
  for (auto& count : counts) count = random() % (3 * kChunk);
  expect_covers(counts);
}

TEST(ChunkPlanTest, HugeTensorsHaveOffsetsBeyond32Bits) {
  std::size_t const huge = (std::size_t{1} << 33) + 1;
  auto const plan = cuda::plan_chunks(std::vector<std::size_t>{huge});
  EXPECT_EQ(plan.of_tensor[0], (ChunkRange{0, huge / kChunk + 1}));
  EXPECT_EQ(plan.chunks.back().first, huge - 1);
  EXPECT_EQ(plan.chunks.back().count, 1U);
}

TEST(ChunkPlanTest, RefusesMoreThanALaunchHolds) {
  EXPECT_THROW(static_cast<void>(cuda::plan_chunks(std::vector<std::size_t>(3, std::size_t{1} << 46))), Error);
}

}  // namespace
}  // namespace weft::test
