#include "weft/shared_heap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "weft/error.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(SharedHeap, BlocksAreAlignedApartAndReused) {
  auto const heap = SharedHeap::create(16 * kMiB);
  auto* const first = static_cast<std::byte*>(heap->allocate(1000));
  auto* const second = static_cast<std::byte*>(heap->allocate(1));
  ASSERT_NE(nullptr, first);
  ASSERT_NE(nullptr, second);
  EXPECT_EQ(0U, reinterpret_cast<std::uintptr_t>(first) % 64);
  EXPECT_EQ(0U, reinterpret_cast<std::uintptr_t>(second) % 64);
  EXPECT_GE(static_cast<std::size_t>(std::abs(second - first)), 1000U);
  EXPECT_TRUE(heap->contains(first));
  int local = 0;
  EXPECT_FALSE(heap->contains(&local));
  heap->deallocate(first);
  EXPECT_EQ(first, heap->allocate(960)) << "what was freed is used again";
  heap->deallocate(nullptr);
}

TEST(SharedHeap, ZeroBytesAreABlockToo) {
  auto const heap = SharedHeap::create(kMiB);
  auto* const one = heap->allocate(0);
  auto* const other = heap->allocate(0);
  ASSERT_NE(nullptr, one);
  EXPECT_NE(one, other);
}

TEST(SharedHeap, AFullHeapSaysSoAndGoesOn) {
  auto const heap = SharedHeap::create(4 * kMiB);
  std::vector<void*> blocks;
  while (auto* const block = heap->allocate(kMiB / 2)) blocks.push_back(block);
  EXPECT_EQ(7U, blocks.size()) << "the header takes a page";
  EXPECT_EQ(nullptr, heap->allocate(std::size_t{1} << 50U));
  EXPECT_EQ(nullptr, heap->allocate(SIZE_MAX));
  auto const used = heap->usage();
  EXPECT_EQ(4 * kMiB, used.capacity);
  EXPECT_EQ(7 * kMiB / 2, used.in_use);
  heap->deallocate(blocks[3]);
  EXPECT_EQ(blocks[3], heap->allocate(kMiB / 2));
}

TEST(SharedHeap, TakesMemoryOnlyAsItIsUsed) {
  auto const heap = SharedHeap::create(std::size_t{1} << 40U);  // far more than any machine has
  EXPECT_LE(heap->usage().committed, 4096U);
  auto* const block = heap->allocate(3 * kMiB);
  ASSERT_NE(nullptr, block);
  std::memset(block, 1, 3 * kMiB);
  auto const used = heap->usage();
  EXPECT_GE(used.committed, 3 * kMiB);
  EXPECT_LE(used.committed, 16 * kMiB);
  EXPECT_EQ(nullptr, heap->allocate(std::size_t{1} << 39U)) << "no memory for it: an answer, not a signal";
}

TEST(SharedHeap, NonsenseSizesAreErrors) {
  for (std::size_t const bytes : {std::size_t{0}, std::size_t{4096}, std::size_t{1} << 50U}) {
    try {
      static_cast<void>(SharedHeap::create(bytes));
      ADD_FAILURE() << bytes;
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::invalid_argument, error.code());
    }
  }
}

/// Every block is filled with its own pattern and checked before it is freed.
TEST(SharedHeap, ManyThreadsNeverShareAByte) {
  auto const heap = SharedHeap::create(64 * kMiB);
  auto const work = [&](unsigned seed) {
    std::mt19937 random(seed);
    struct Mine {
      unsigned char* data;
      std::size_t bytes;
      unsigned char mark;
    };
    std::vector<Mine> mine;
    auto const check_and_free = [&](Mine const& block) {
      auto const good = std::all_of(block.data, block.data + block.bytes, [&](auto c) { return c == block.mark; });
      EXPECT_TRUE(good) << "seed " << seed;
      heap->deallocate(block.data);
    };
    for (int step = 0; step < 400; ++step) {
      if (mine.size() < 12 && random() % 3 != 0) {
        auto const bytes = std::size_t{1} + random() % 200'000;
        auto* const data = static_cast<unsigned char*>(heap->allocate(bytes));
        if (data == nullptr) continue;
        auto const mark = static_cast<unsigned char>(random());
        std::memset(data, mark, bytes);
        mine.push_back({data, bytes, mark});
      } else if (!mine.empty()) {
        auto const which = mine.begin() + static_cast<std::ptrdiff_t>(random() % mine.size());
        check_and_free(*which);
        mine.erase(which);
      }
    }
    for (auto const& block : mine) check_and_free(block);
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) threads.emplace_back(work, t + 1);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(0U, heap->usage().in_use);
  EXPECT_NE(nullptr, heap->allocate(heap->usage().committed - 4096)) << "all that was freed merged again";
}

}  // namespace
}  // namespace weft::test
