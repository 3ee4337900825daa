#include "weft_memory/caching_allocator.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace weft::memory_tool {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

PlannedBuffer buffer(std::int64_t begin, std::int64_t end, std::int64_t bytes) {
  return {.life = {begin, end}, .bytes = bytes};
}

TEST(CachingAllocator, SegmentsHaveSizesByWhatIsAskedFor) {
  EXPECT_EQ(cached_bytes({}), 0);
  EXPECT_EQ(cached_bytes({buffer(0, 1, 0), buffer(2, 2, 5)}), 0);
  EXPECT_EQ(cached_bytes({buffer(0, 1, 1)}), 2 * kMiB);
  EXPECT_EQ(cached_bytes({buffer(0, 1, kMiB)}), 2 * kMiB);
  EXPECT_EQ(cached_bytes({buffer(0, 1, kMiB + 1)}), 20 * kMiB);
  EXPECT_EQ(cached_bytes({buffer(0, 1, 11 * kMiB)}), 12 * kMiB);
}

TEST(CachingAllocator, SmallOnesShareASegmentInUnitsOf512) {
  EXPECT_EQ(cached_bytes(std::vector<PlannedBuffer>(4096, buffer(0, 1, 512))), 2 * kMiB);
  EXPECT_EQ(cached_bytes(std::vector<PlannedBuffer>(4096, buffer(0, 1, 513))), 4 * kMiB);
}

TEST(CachingAllocator, WhatWasGivenBackIsTakenAgainInWholeOrInPart) {
  EXPECT_EQ(cached_bytes({buffer(0, 1, 12 * kMiB), buffer(1, 2, 12 * kMiB)}), 12 * kMiB);
  EXPECT_EQ(cached_bytes({buffer(0, 1, 12 * kMiB), buffer(1, 2, 8 * kMiB), buffer(1, 2, 4 * kMiB)}), 12 * kMiB);
  // Neighbours in a segment become one again, other segments' never.
  EXPECT_EQ(
      cached_bytes({buffer(0, 1, 12 * kMiB), buffer(1, 2, 8 * kMiB), buffer(1, 3, 4 * kMiB), buffer(4, 5, 12 * kMiB)}),
      12 * kMiB);
  EXPECT_EQ(cached_bytes({buffer(0, 1, 12 * kMiB), buffer(0, 1, 12 * kMiB), buffer(1, 2, 24 * kMiB)}), 48 * kMiB);
}

TEST(CachingAllocator, TheRestOfALargeBlockIsLostUpToOneMebibyte) {
  // 11.5 of 12 MiB are asked for: half a MiB is not split off, so that nothing else gets it.
  EXPECT_EQ(cached_bytes({buffer(0, 2, 12 * kMiB - kMiB / 2), buffer(1, 2, kMiB / 2)}), 12 * kMiB + 2 * kMiB);
  // Small and large blocks do not mix.
  EXPECT_EQ(cached_bytes({buffer(0, 2, 2 * kMiB), buffer(1, 2, kMiB)}), 20 * kMiB + 2 * kMiB);
}

}  // namespace
}  // namespace weft::memory_tool
