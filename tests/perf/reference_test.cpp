// The reference that results are checked against must itself notice a wrong result.
#include "common/reference.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "common/pattern.hpp"

namespace {

using weft::DataType;
using weft::ReduceOp;
using weft::perf::Reference;

constexpr ReduceOp kOps[] = {ReduceOp::sum,  ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                             ReduceOp::land, ReduceOp::lor,  ReduceOp::lxor};

TEST(Reference, EveryTypeHoldsEveryValueExactly) {
  for (int value = 0; weft::is_valid(static_cast<DataType>(value)); ++value) {
    auto const dtype = static_cast<DataType>(value);
    for (auto const op : kOps) {
      for (int const ranks : {1, 3, 16, 64}) {
        Reference const reference(dtype, op, ranks);
        for (std::size_t i = 0; i < 300; ++i) {
          std::byte element[16];
          weft::perf::encode(dtype, reference.reduced(i), element);
          EXPECT_EQ(weft::perf::decode(dtype, element), reference.reduced(i))
              << to_string(dtype) << ' ' << to_string(op) << ' ' << ranks;
        }
      }
    }
  }
}

TEST(Reference, LogicAndBitsByHand) {
  Reference const all(DataType::i32, ReduceOp::band, 2);
  Reference const any(DataType::i32, ReduceOp::lor, 2);
  // Rank 0 has 0 5 2 7 …, rank 1 has 3 0 5 2 …
  EXPECT_EQ(all.reduced(2), 2 & 5);
  EXPECT_EQ(all.reduced(3), 7 & 2);
  EXPECT_EQ(any.reduced(0), 1);
  Reference const alone(DataType::i32, ReduceOp::land, 1);
  EXPECT_EQ(alone.reduced(1), 1);
}

TEST(Reference, RepetitionsDiffer) {
  Reference const first(DataType::f32, ReduceOp::sum, 2, 0);
  Reference const second(DataType::f32, ReduceOp::sum, 2, 1);
  EXPECT_NE(first.reduced(0), second.reduced(0));
}

TEST(Reference, ASumWithoutOneRankIsNoticedSomewhere) {
  for (int ranks = 2; ranks <= 64; ranks += 7) {
    Reference const whole(ranks % 2 == 0 ? DataType::f32 : DataType::f8e5m2, ReduceOp::sum, ranks);
    for (int missing = 0; missing < ranks; ++missing) {
      bool noticed = false;
      for (std::size_t i = 0; i < 64; ++i)
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
