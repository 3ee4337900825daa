#include "kernels/cpu/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "harness/sanitizers.hpp"
#include "kernels/reduce_reference.hpp"
#include "kernels/simd_targets.hpp"

namespace weft::test {
namespace {

using kernels::Store;

/// Every operator that `T` supports and that needs no function.
template <typename T>
std::vector<ReduceOp> ops_of() {
  std::vector<ReduceOp> ops;
  for (int i = 0; i < static_cast<int>(ReduceOp::user); ++i) {
    if (supports(dtype_of<T>(), static_cast<ReduceOp>(i))) ops.push_back(static_cast<ReduceOp>(i));
  }
  return ops;
}

constexpr std::size_t kCounts[] = {0,   1,   2,    3,    61,   127,
                                   128, 129, 1021, 4097, 16411};  // the last two, or one, not short
constexpr std::byte kGuard{0xA5};

/// `count` elements that start `offset` bytes past a cache line, with guard bytes around them.
template <typename T>
class Array {
 public:
  Array(std::size_t count, std::size_t offset) : count_(count), bytes_(count * sizeof(T) + 256, kGuard) {
    auto const address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    start_ = (64 - address % 64) % 64 + 64 + offset;
  }
  [[nodiscard]] void* data() { return bytes_.data() + start_; }
  [[nodiscard]] T get(std::size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + start_ + i * sizeof(T), sizeof(T));
    return value;
  }
  void set(std::size_t i, T value) { std::memcpy(bytes_.data() + start_ + i * sizeof(T), &value, sizeof(T)); }
  void fill(std::mt19937_64& random) {
    for (std::size_t i = 0; i < count_; ++i) set(i, random_element<T>(random));
  }
  [[nodiscard]] bool guards_intact() const {
    auto const is_guard = [](std::byte b) { return b == kGuard; };
    auto const first = bytes_.begin() + static_cast<std::ptrdiff_t>(start_);
    return std::all_of(bytes_.begin(), first, is_guard) &&
           std::all_of(first + static_cast<std::ptrdiff_t>(count_ * sizeof(T)), bytes_.end(), is_guard);
  }

 private:
  std::size_t count_;
  std::vector<std::byte> bytes_;
  std::size_t start_ = 0;
};

constexpr std::size_t kMostSources = 300;  // more than the numbers of a byte

template <typename T>
class ReduceTest : public ::testing::Test {
 protected:
  /// Byte offsets from a cache line: aligned, aligned to the element, and not at all.
  std::size_t random_offset() {
    std::size_t const choices[] = {0, sizeof(T) * (random_() % (64 / sizeof(T))), random_() % 64};
    return choices[random_() % 3];
  }

  Store random_store() {
    constexpr Store kStores[] = {Store::cached, Store::streaming, Store::unfenced};
    return kStores[random_() % 3];
  }

  std::vector<Array<T>> make_sources(std::size_t sources, std::size_t count) {
    std::vector<Array<T>> arrays;
    for (std::size_t r = 0; r < sources; ++r) arrays.emplace_back(count, random_offset()).fill(random_);
    return arrays;
  }

  std::vector<T> expected(std::vector<Array<T>> const& sources, std::size_t count, ReduceOp op) {
    for (std::size_t r = 0; r < sources.size(); ++r) scales_[r] = random_scale<T>(random_);
    return expected_as_scaled(sources, count, op);
  }

  /// With the scales of the last expected().
  std::vector<T> expected_as_scaled(std::vector<Array<T>> const& sources, std::size_t count, ReduceOp op) const {
    std::vector<T> result(count);
    std::vector<T> contributions(sources.size());
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t r = 0; r < sources.size(); ++r) contributions[r] = sources[r].get(i);
      result[i] = reduce_reference(contributions, op, scales_.data());
    }
    return result;
  }

  void run(std::vector<Array<T>*> const& dsts, std::vector<Array<T>>& srcs, std::size_t first, std::size_t last,
           ReduceOp op, Store store) {
    std::vector<void*> to;
    std::vector<void const*> from;
    for (Array<T>* dst : dsts) to.push_back(static_cast<std::byte*>(dst->data()) + first * sizeof(T));
    for (Array<T>& src : srcs) from.push_back(static_cast<std::byte*>(src.data()) + first * sizeof(T));
    kernels::reduce(to, from, last - first, dtype_of<T>(), {op, scales_.data(), {}}, store);
  }

  static void expect_equal(Array<T> const& got, std::vector<T> const& want, std::string const& what) {
    ASSERT_TRUE(got.guards_intact()) << what << ": wrote outside the destination";
    for (std::size_t i = 0; i < want.size(); ++i) {
      auto const value = got.get(i);
      ASSERT_TRUE(same(value, want[i])) << what << ": element " << i << " is " << testing::PrintToString(value)
                                        << ", expected " << testing::PrintToString(want[i]);
    }
  }

  std::mt19937_64 random_{20240607};
  std::array<double, kMostSources> scales_{};
};

using Types = ::testing::Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
                               std::int64_t, std::uint64_t, Half, BFloat16, Float8E4M3, Float8E5M2, float, double,
                               std::complex<float>, std::complex<double>, Boolean>;
TYPED_TEST_SUITE(ReduceTest, Types);

std::string describe(ReduceOp op, std::size_t sources, std::size_t count, std::int64_t target) {
  return std::string(to_string(op)) + " of " + std::to_string(sources) + " sources, " + std::to_string(count) +
         " elements, SIMD target " + std::to_string(target);
}

TYPED_TEST(ReduceTest, MatchesTheDefinitionOnEveryTarget) {
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (ReduceOp const op : ops_of<TypeParam>()) {
      for (std::size_t const sources : unless_sanitized<std::vector<std::size_t>>({1, 2, 3, 4, 5, 8}, {1, 4})) {
        for (std::size_t const count : kCounts) {
          auto srcs = this->make_sources(sources, count);
          auto const want = this->expected(srcs, count, op);
          std::size_t const destinations = 1 + this->random_() % 3;
          std::size_t const common = this->random_offset();
          bool const together = this->random_() % 2 == 0;  // one alignment for all, as symmetric memory has
          std::vector<Array<TypeParam>> dsts;
          for (std::size_t k = 0; k < destinations; ++k)
            dsts.emplace_back(count, together ? common : this->random_offset());
          std::vector<Array<TypeParam>*> to;
          for (auto& dst : dsts) to.push_back(&dst);
          this->run(to, srcs, 0, count, op, this->random_store());
          for (auto const& dst : dsts) this->expect_equal(dst, want, describe(op, sources, count, target));
          if (this->HasFatalFailure()) return;
        }
      }
    }
  }
}

TYPED_TEST(ReduceTest, BitsDoNotDependOnSplitsAlignmentOrStores) {
  constexpr std::size_t kCount = 17001;  // as a whole not short, in pieces short
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (ReduceOp const op : ops_of<TypeParam>()) {
      for (std::size_t const sources : unless_sanitized<std::vector<std::size_t>>({2, 3, 7}, {3})) {
        auto srcs = this->make_sources(sources, kCount);
        this->expected(srcs, 0, op);  // draws scales
        Array<TypeParam> whole(kCount, 0);
        this->run({&whole}, srcs, 0, kCount, op, Store::cached);
        Array<TypeParam> pieces(kCount, this->random_offset());
        Array<TypeParam> second(kCount, this->random_offset());
        for (std::size_t first = 0; first < kCount;) {
          std::size_t const last = std::min<std::size_t>(kCount, first + 1 + this->random_() % 200);
          bool const two = this->random_() % 2 == 0;
          auto const store = this->random_store();
          if (two) {
            this->run({&second, &pieces}, srcs, first, last, op, store);
          } else {
            this->run({&pieces}, srcs, first, last, op, store);
          }
          first = last;
        }
        for (std::size_t i = 0; i < kCount; ++i) {
          ASSERT_TRUE(same(whole.get(i), pieces.get(i))) << describe(op, sources, kCount, target) << ": element " << i;
        }
      }
    }
  }
}

TYPED_TEST(ReduceTest, RangesAlikeAreReducedEachByItself) {
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (ReduceOp const op : ops_of<TypeParam>()) {
      std::size_t const ranges = 1 + this->random_() % 20;  // more than are read in turns
      std::size_t const sources = 1 + this->random_() % 4;
      std::size_t const destinations = 1 + this->random_() % 2;
      for (std::size_t const count : {std::size_t{0}, 1 + this->random_() % 150, 1000 + this->random_() % 2000}) {
        std::vector<std::vector<Array<TypeParam>>> srcs;
        std::vector<std::vector<TypeParam>> want;
        std::vector<Array<TypeParam>> dsts;
        std::vector<void const*> from;
        std::vector<void*> to;
        for (std::size_t k = 0; k < ranges; ++k) {
          srcs.push_back(this->make_sources(sources, count));
          want.push_back(k == 0 ? this->expected(srcs[k], count, op) : this->expected_as_scaled(srcs[k], count, op));
          for (std::size_t d = 0; d < destinations; ++d) dsts.emplace_back(count, this->random_offset());
          for (auto& src : srcs[k]) from.push_back(src.data());
        }
        for (auto& dst : dsts) to.push_back(dst.data());
        kernels::reduce_alike(ranges, to, from, count, dtype_of<TypeParam>(), {op, this->scales_.data(), {}},
                              this->random_store());
        for (std::size_t i = 0; i < dsts.size(); ++i) {
          auto const k = i / destinations;
          this->expect_equal(
              dsts[i], want[k],
              describe(op, sources, count, target) + ", range " + std::to_string(k) + " of " + std::to_string(ranges));
        }
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TYPED_TEST(ReduceTest, DestinationMayBeASource) {
  constexpr std::size_t kCount = 1021;
  for (ReduceOp const op : ops_of<TypeParam>()) {
    for (std::size_t sources = 1; sources <= 5; ++sources) {
      for (Store const store : {Store::cached, Store::streaming, Store::unfenced}) {
        auto srcs = this->make_sources(sources, kCount);
        auto const want = this->expected(srcs, kCount, op);
        std::vector<Array<TypeParam>*> all;
        for (auto& src : srcs) all.push_back(&src);
        this->run(all, srcs, 0, kCount, op, store);
        for (auto const& src : srcs) this->expect_equal(src, want, describe(op, sources, kCount, 0) + " in place");
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TYPED_TEST(ReduceTest, TakesManySources) {
  constexpr std::size_t kCount = 131;
  for (std::size_t const sources : {kernels::kFewSources, kernels::kFewSources + 1, kMostSources}) {
    for (ReduceOp const op : ops_of<TypeParam>()) {
      auto srcs = this->make_sources(sources, kCount);
      auto const want = this->expected(srcs, kCount, op);
      Array<TypeParam> dst(kCount, 0);
      this->run({&dst}, srcs, 0, kCount, op, Store::cached);
      this->expect_equal(dst, want, describe(op, sources, kCount, 0));
    }
  }
}

}  // namespace
}  // namespace weft::test
