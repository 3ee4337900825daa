#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "harness/sanitizers.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/reduce_reference.hpp"
#include "kernels/simd_targets.hpp"

namespace weft::test {
namespace {

template <typename T>
class NarrowFloatTest : public ::testing::Test {
 protected:
  static std::vector<T> every_value() {
    std::vector<T> values(std::size_t{1} << (8 * sizeof(T)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i].bits = static_cast<decltype(T::bits)>(i);
    return values;
  }

  static std::vector<T> reduce(std::vector<std::vector<T>> const& srcs, ReduceOp op) {
    std::vector<T> result(srcs.at(0).size());
    std::vector<void const*> from;
    for (auto const& src : srcs) from.push_back(src.data());
    void* const to[] = {result.data()};
    kernels::reduce(to, from, result.size(), data_type_of<T>, op);
    return result;
  }
};

using Types = ::testing::Types<Half, BFloat16, Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(NarrowFloatTest, Types);

TYPED_TEST(NarrowFloatTest, EveryValuePlusEveryOtherScaleRoundsToNearestEven) {
  auto const values = this->every_value();
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    // Pairs near in size make ties, far ones sticky bits.
    for (unsigned const step :
         unless_sanitized<std::vector<unsigned>>({1U, 17U, 1024U, 4095U, 32768U, 40001U}, {4095U})) {
      std::vector<TypeParam> others(values.size());
      for (std::size_t i = 0; i < others.size(); ++i) others[i].bits = static_cast<decltype(TypeParam::bits)>(i + step);
      for (ReduceOp const op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod}) {
        auto const got = this->reduce({values, others}, op);
        for (std::size_t i = 0; i < got.size(); ++i) {
          TypeParam const want = reduce_reference<TypeParam>({values[i], others[i]}, op);
          ASSERT_TRUE(same(got[i], want))
              << to_string(op) << " of bits " << +values[i].bits << " and " << +others[i].bits << " on target "
              << target << ": " << +got[i].bits << ", expected " << +want.bits;
        }
      }
    }
  }
}

TYPED_TEST(NarrowFloatTest, SumsOfManyRoundOnlyOnce) {
  // Each addend is half of the last place of 1: rounding after each addition would lose all of them.
  constexpr int kFraction = format_of<TypeParam>.fraction_bits;
  auto const encode = [](double value) { return narrow<TypeParam>(static_cast<float>(value)); };
  std::vector<std::vector<TypeParam>> srcs(9, std::vector<TypeParam>(100, encode(std::ldexp(1.0, -kFraction - 1))));
  srcs[0].assign(100, encode(1.0));
  auto const got = this->reduce(srcs, ReduceOp::sum);
  for (TypeParam const value : got) EXPECT_EQ(widen(value), 1.0 + 4 * std::ldexp(1.0, -kFraction));
}

template <typename T>
class Float8Test : public NarrowFloatTest<T> {};
using ByteTypes = ::testing::Types<Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(Float8Test, ByteTypes);

TYPED_TEST(Float8Test, EveryPairOnEveryTarget) {
  auto const values = this->every_value();
  std::vector<TypeParam> left;
  std::vector<TypeParam> right;
  for (auto const a : values) {
    for (auto const b : values) {
      left.push_back(a);
      right.push_back(b);
    }
  }
  for (ReduceOp const op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
    std::vector<TypeParam> want;
    for (std::size_t i = 0; i < left.size(); ++i) want.push_back(reduce_reference<TypeParam>({left[i], right[i]}, op));
    for (std::int64_t const target : runnable_targets()) {
      UseTarget const use(target);
      auto const got = this->reduce({left, right}, op);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(same(got[i], want[i]))
            << to_string(op) << " of bits " << +left[i].bits << " and " << +right[i].bits << " on target " << target
            << ": " << +got[i].bits << ", expected " << +want[i].bits;
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
