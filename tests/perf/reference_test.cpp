// The reference that results are checked against must itself notice a wrong result.
#include "common/reference.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "common/pattern.hpp"

namespace {

using weft::DataType;
using weft::ReduceOp;
using weft::perf::Reference;

constexpr DataType kTypes[] = {DataType::i8,  DataType::u8,  DataType::i32,  DataType::u32, DataType::i64,
                               DataType::u64, DataType::f16, DataType::bf16, DataType::f32, DataType::f64};

TEST(Reference, EveryTypeHoldsEveryValueExactly) {
  for (auto const dtype : kTypes) {
    for (auto const op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
      Reference const reference(dtype, op, 16);
      for (std::size_t i = 0; i < 300; ++i) {
        std::byte element[8];
        weft::perf::encode(dtype, reference.reduced(i), element);
        EXPECT_EQ(weft::perf::decode(dtype, element), reference.reduced(i)) << to_string(dtype) << ' ' << to_string(op);
      }
    }
  }
}

TEST(Reference, ASumWithoutOneRankIsNoticedSomewhere) {
  for (int ranks = 2; ranks <= 16; ++ranks) {
    Reference const whole(DataType::f32, ReduceOp::sum, ranks);
    for (int missing = 0; missing < ranks; ++missing) {
      bool noticed = false;
      for (std::size_t i = 0; i < 8; ++i)
        noticed = noticed || !whole.agrees(whole.reduced(i), whole.reduced(i) - whole.contribution(missing, i));
      EXPECT_TRUE(noticed) << missing << " of " << ranks;
    }
  }
}

TEST(Reference, SumsByHand) {
  Reference const reference(DataType::i32, ReduceOp::sum, 2);
  // Rank 0 has 0 5 2 7 …, rank 1 has 3 0 5 2 …
  EXPECT_EQ(reference.reduced(0), 3);
  EXPECT_EQ(reference.reduced(1), 5);
  EXPECT_EQ(reference.reduced(2), 7);
  EXPECT_EQ(reference.reduced(3), 9);
}

TEST(Reference, IntegerAveragesTruncate) {
  Reference const reference(DataType::i32, ReduceOp::avg, 2);
  EXPECT_EQ(reference.reduced(0), 1);  // 3 / 2
  Reference const floating(DataType::f32, ReduceOp::avg, 2);
  EXPECT_EQ(floating.reduced(0), 1.5);
}

TEST(Pattern, WritesEveryByteAndChangesWithTheIteration) {
  weft::perf::Pattern const pattern(DataType::f32, 0);
  for (std::size_t count : {1U, 2U, 15U, 16U, 17U, 1000U}) {
    std::vector<float> first(count, -1.0F);
    std::vector<float> second(count, -1.0F);
    pattern.write({first.data(), count, DataType::f32}, 1);
    pattern.write({second.data(), count, DataType::f32}, 2);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_GE(first[i], 1.0F);
      EXPECT_LE(first[i], 5.0F);
    }
    EXPECT_NE(first, second);
  }
}

}  // namespace
