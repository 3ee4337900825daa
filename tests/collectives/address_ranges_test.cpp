#include "collectives/address_ranges.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace weft::test {
namespace {

std::byte const* address(std::size_t at) {
  return reinterpret_cast<std::byte const*>(std::uintptr_t{4096} + at);  // never looked at
}

TEST(AddressRanges, KnowWhatWasAdded) {
  constexpr std::uint64_t kSeed = 20261123;
  constexpr std::size_t kSpace = 200;
  std::mt19937_64 engine(kSeed);
  for (int round = 0; round < 200; ++round) {
    AddressRanges ranges;
    std::vector<bool> reference(kSpace, false);
    auto const longest = 1 + engine() % 20;
    for (int i = 0; i < 40; ++i) {
      auto const first = engine() % (kSpace - longest);
      auto const bytes = engine() % (longest + 1);
      auto const begin = reference.begin() + static_cast<std::ptrdiff_t>(first);
      auto const end = begin + static_cast<std::ptrdiff_t>(bytes);
      ASSERT_EQ(ranges.touches(address(first), bytes), std::find(begin, end, true) != end)
          << "seed " << kSeed << ", round " << round << ", step " << i;
      if (engine() % 2 == 0) continue;
      ranges.add(address(first), bytes);
      std::fill(begin, end, true);
    }
  }
}

// A quadratic insertion of so many takes longer than a test may.
TEST(AddressRanges, HundredsOfThousandsInDescendingOrder) {
  constexpr std::size_t kRanges = 600'000;
  AddressRanges ranges;
  for (std::size_t i = 0; i < kRanges; ++i) {
    auto const at = 2 * (kRanges - 1 - i);
    ASSERT_FALSE(ranges.touches(address(at), 1));
    ranges.add(address(at), 1);
  }
  EXPECT_TRUE(ranges.touches(address(2 * kRanges - 2), 1));
  EXPECT_FALSE(ranges.touches(address(2 * kRanges - 1), 1));
  ranges.add(address(0), 2 * kRanges);
  EXPECT_TRUE(ranges.touches(address(2 * kRanges - 1), 1));
}

}  // namespace
}  // namespace weft::test
