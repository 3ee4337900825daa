#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <new>
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

/// Pages that nobody may touch around `bytes` of memory.
class GuardedPages {
 public:
  explicit GuardedPages(std::size_t bytes) : bytes_(bytes), data_(map(bytes)) {}
  ~GuardedPages() { ::munmap(data_ - kPage, bytes_ + 2 * kPage); }
  GuardedPages(GuardedPages const&) = delete;
  GuardedPages& operator=(GuardedPages const&) = delete;

  [[nodiscard]] unsigned char* data() const noexcept { return data_; }
  void forbid_stores() const { ASSERT_EQ(0, ::mprotect(data_, bytes_, PROT_READ)); }

 private:
  static constexpr std::size_t kPage = 4096;

  static unsigned char* map(std::size_t bytes) {
    auto* const all = ::mmap(nullptr, bytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    auto* const data = static_cast<unsigned char*>(all) + kPage;
    ::mprotect(data, bytes, PROT_READ | PROT_WRITE);
    return data;
  }

  std::size_t bytes_;
  unsigned char* data_;
};

TEST(TakeTest, ChangesNothingAndKeepsToItsRange) {
  constexpr std::size_t kBytes = std::size_t{8} << 12;
  std::mt19937_64 random(9);
  GuardedPages const source(kBytes);
  GuardedPages const target(kBytes);
  std::generate_n(source.data(), kBytes, [&] { return static_cast<unsigned char>(random()); });
  std::vector<unsigned char> const before(source.data(), source.data() + kBytes);
  for (std::size_t const bytes : {0, 1, 7, 8, 9, 15, 63, 64, 65, 129, 4097, 16383, 16384, 16385, 32700}) {
    for (std::size_t shift = 0; shift <= 16; ++shift) {
      for (auto const offset : {shift, kBytes - bytes - shift}) {
        kernels::take(source.data() + offset, bytes);
        std::fill_n(target.data(), kBytes, 0xA5);
        kernels::copy_and_take(target.data() + offset, source.data() + offset, bytes);
        ASSERT_TRUE(std::equal(before.begin(), before.end(), source.data())) << bytes << " bytes at +" << offset;
        auto want = std::vector<unsigned char>(kBytes, 0xA5);
        std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(offset), bytes,
                    want.begin() + static_cast<std::ptrdiff_t>(offset));
        ASSERT_TRUE(std::equal(want.begin(), want.end(), target.data())) << bytes << " bytes at +" << offset;
      }
    }
  }
}

#if defined(__x86_64__)
/// Who may not store there cannot: what it is for.
TEST(TakeTest, StoresInEveryLine) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  GuardedPages const memory(4096);
  memory.forbid_stores();
  for (std::size_t line = 0; line < 4096; line += 1024) {
    auto const take = [&] {
      std::signal(SIGSEGV, SIG_DFL);  // sanitizers end with a report
      kernels::take(memory.data() + line, 64);
    };
    EXPECT_EXIT(take(), testing::KilledBySignal(SIGSEGV), "") << line;
  }
}
#endif

}  // namespace
}  // namespace weft::test
