#include "collectives/shm/block_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace weft::shm::test {
namespace {

/// Byte by byte: the first of the shortest free stretches that are long enough.
class Reference {
 public:
  explicit Reference(std::size_t bytes) : free_(bytes, false) {}
  void mark(std::size_t offset, std::size_t bytes, bool free) {
    std::fill_n(free_.begin() + static_cast<std::ptrdiff_t>(offset), bytes, free);
  }
  [[nodiscard]] std::optional<std::size_t> best(std::size_t bytes) const {
    std::optional<std::size_t> found;
    std::size_t shortest = free_.size() + 1;
    for (std::size_t begin = 0; begin < free_.size();) {
      auto end = begin;
      while (end < free_.size() && free_[end]) ++end;
      if (end - begin >= bytes && end - begin < shortest) {
        shortest = end - begin;
        found = begin;
      }
      begin = end + 1;
    }
    return found;
  }
  [[nodiscard]] std::size_t free_before(std::size_t end) const {
    std::size_t bytes = 0;
    while (bytes < end && free_[end - bytes - 1]) ++bytes;
    return bytes;
  }

 private:
  std::vector<bool> free_;
};

TEST(BlockPool, AgreesWithABytewiseBestFit) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    constexpr std::size_t kBytes = 300;
    BlockPool pool;
    Reference reference(kBytes);
    pool.give(0, kBytes);
    reference.mark(0, kBytes, true);
    std::vector<std::pair<std::size_t, std::size_t>> taken;
    for (int step = 0; step < 500; ++step) {
      if (random() % 2 == 0 || taken.empty()) {
        auto const bytes = 1 + random() % 40;
        auto const expected = reference.best(bytes);
        auto const offset = pool.take(bytes);
        ASSERT_EQ(expected, offset) << "seed " << seed << " step " << step;
        if (!offset) continue;
        reference.mark(*offset, bytes, false);
        taken.emplace_back(*offset, bytes);
      } else {
        auto const which = random() % taken.size();
        auto const [offset, bytes] = taken[which];
        pool.give(offset, bytes);
        reference.mark(offset, bytes, true);
        taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(which));
      }
      auto const end = 1 + random() % kBytes;
      if (!reference.best(1) || end == kBytes) {
        ASSERT_EQ(reference.free_before(kBytes), pool.free_before(kBytes)) << "seed " << seed << " step " << step;
      }
    }
    for (auto const& [offset, bytes] : taken) pool.give(offset, bytes);
    EXPECT_EQ(0U, pool.take(kBytes)) << "all stretches merged again";
  }
}

}  // namespace
}  // namespace weft::shm::test
