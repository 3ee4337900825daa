#include "kernels/cpu/short_copy.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/reduce.hpp"
#include "kernels/simd_targets.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kPage = 4096;

/// A page that may be touched, with one before and one behind it that may not.
class LonePage {
 public:
  LonePage() {
    void* const mapped = ::mmap(nullptr, 3 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    pages_.reset(static_cast<unsigned char*>(mapped));
    if (::mprotect(begin(), kPage, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  }

  [[nodiscard]] unsigned char* begin() const { return pages_.get() + kPage; }
  /// The last `bytes` of it.
  [[nodiscard]] unsigned char* last(std::size_t bytes) const { return begin() + kPage - bytes; }

 private:
  struct Unmap {
    void operator()(unsigned char* pages) const { ::munmap(pages, 3 * kPage); }
  };
  std::unique_ptr<unsigned char, Unmap> pages_;
};

TEST(ShortCopy, MovesAllBytesAndNoOthers) {
  std::mt19937 random(5);
  LonePage const from;
  LonePage const to;
  for (std::size_t bytes = 0; bytes <= kernels::kShortBytes; ++bytes) {
    for (bool const at_end : {false, true}) {
      auto* const source = at_end ? from.last(bytes) : from.begin();
      auto* const target = at_end ? to.last(bytes) : to.begin();
      std::vector<unsigned char> want(kPage);
      for (auto& byte : want) byte = static_cast<unsigned char>(random());
      std::memcpy(to.begin(), want.data(), kPage);
      for (std::size_t i = 0; i < bytes; ++i) {
        source[i] = static_cast<unsigned char>(random());
        want[static_cast<std::size_t>(target - to.begin()) + i] = source[i];
      }
      kernels::copy_short(target, source, bytes);
      ASSERT_EQ(std::memcmp(to.begin(), want.data(), kPage), 0) << bytes << (at_end ? " at a page's end" : "");
    }
  }
}

TEST(ShortReduction, TouchesNothingBesideItsOperands) {
  constexpr std::size_t kRanks = 3;
  std::array<LonePage, kRanks> const contributions;
  LonePage const result;
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (auto const dtype : {DataType::f64, DataType::f32, DataType::f16, DataType::bf16, DataType::f8e4m3,
                             DataType::f8e5m2, DataType::i64, DataType::u32, DataType::i16, DataType::u8,
                             DataType::boolean, DataType::c64, DataType::c128}) {
      for (std::size_t count = 1; count * size_of(dtype) <= 80; ++count) {
        auto const bytes = count * size_of(dtype);
        for (bool const at_end : {false, true}) {
          std::array<void const*, kRanks> sources{};
          for (std::size_t r = 0; r < kRanks; ++r) {
            auto* const source = at_end ? contributions[r].last(bytes) : contributions[r].begin();
            std::memset(source, 0, bytes);
            sources[r] = source;
          }
          std::memset(result.begin(), 0xa5, kPage);
          void* const destination = at_end ? result.last(bytes) : result.begin();
          kernels::reduce({&destination, 1}, sources, count, dtype, ReduceOp::sum);
          std::vector<unsigned char> want(kPage, 0xa5);
          std::memset(want.data() + (at_end ? kPage - bytes : 0), 0, bytes);
          ASSERT_EQ(std::memcmp(result.begin(), want.data(), kPage), 0)
              << count << " × " << to_string(dtype) << (at_end ? " at a page's end" : "");
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
