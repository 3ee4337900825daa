#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/cpu/reduce.hpp"
#include "kernels/simd_targets.hpp"

namespace weft::test {
namespace {

TEST(CopyTest, MovesExactlyTheBytesAskedFor) {
  std::mt19937_64 random(7);
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (std::size_t const bytes : {0, 1, 3, 63, 64, 65, 127, 255, 256, 257, 1021, 2047, 2048, 4096, 65537}) {
      for (int repeat = 0; repeat < 8; ++repeat) {
        for (auto const store :
             {kernels::Store::cached, kernels::Store::streaming, kernels::Store::unfenced, kernels::Store::to_peer}) {
          std::size_t const from = random() % 64;
          std::size_t const to = random() % 64;
          std::vector<unsigned char> src(bytes + 128);
          std::generate(src.begin(), src.end(), [&] { return static_cast<unsigned char>(random()); });
          std::vector<unsigned char> dst(bytes + 128, 0xA5);
          std::vector<unsigned char> want = dst;
          std::copy_n(src.begin() + static_cast<std::ptrdiff_t>(from), bytes,
                      want.begin() + static_cast<std::ptrdiff_t>(to));
          kernels::copy(dst.data() + to, src.data() + from, bytes, store);
          ASSERT_EQ(dst, want) << bytes << " bytes from +" << from << " to +" << to;
          std::fill_n(want.begin() + static_cast<std::ptrdiff_t>(to), bytes, static_cast<unsigned char>(0));
          kernels::zero(dst.data() + to, bytes, store);
          ASSERT_EQ(dst, want) << bytes << " zeros at +" << to;
        }
      }
    }
  }
}

/// Where string moves are avoided: the destination a little behind the source's place in a page.
TEST(CopyTest, MovesExactlyTheBytesAskedForAtAnyPlaceInAPage) {
  constexpr std::size_t kPage = 4096;
  std::mt19937_64 random(8);
  std::vector<unsigned char> src(24 * kPage);
  std::generate(src.begin(), src.end(), [&] { return static_cast<unsigned char>(random()); });
  std::vector<unsigned char> memory(26 * kPage);
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (std::size_t const bytes : {1023, 1024, 1025, 2048, 4099, 65537}) {
      for (std::size_t const behind : {0, 1, 16, 32, 63, 64, 4095}) {
        for (auto const store : {kernels::Store::cached, kernels::Store::to_peer}) {
          std::size_t const from = random() % 64;
          auto const place = reinterpret_cast<std::uintptr_t>(src.data() + from) % kPage;
          auto const base = reinterpret_cast<std::uintptr_t>(memory.data()) % kPage;
          std::size_t const to = (place + behind + kPage - base) % kPage;
          std::fill(memory.begin(), memory.end(), 0xA5);
          auto want = memory;
          std::copy_n(src.begin() + static_cast<std::ptrdiff_t>(from), bytes,
                      want.begin() + static_cast<std::ptrdiff_t>(to));
          kernels::copy(memory.data() + to, src.data() + from, bytes, store);
          ASSERT_EQ(memory, want) << bytes << " bytes, " << behind << " behind";
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
