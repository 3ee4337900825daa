// The reference that results are checked against must itself notice a wrong result.
#include "common/reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/pattern.hpp"

namespace {

using weft::DataType;
using weft::ReduceOp;
using weft::perf::Reference;

constexpr ReduceOp kOps[] = {ReduceOp::sum,        ReduceOp::prod, ReduceOp::min,  ReduceOp::max,
                             ReduceOp::land,       ReduceOp::lor,  ReduceOp::lxor, ReduceOp::avg,
                             ReduceOp::premul_sum, ReduceOp::band, ReduceOp::bor,  ReduceOp::bxor};

TEST(Reference, EveryTypeHoldsEveryValueExactly) {
  for (int value = 0; weft::is_valid(static_cast<DataType>(value)); ++value) {
    auto const dtype = static_cast<DataType>(value);
    for (auto const op : kOps) {
      if (!supports(dtype, op) || op == ReduceOp::avg) continue;  // averages round
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

std::uint64_t whole(double value) {
  return static_cast<std::uint64_t>(value);
}

TEST(Reference, LogicAndBitsOfTwoRanks) {
  Reference const all(DataType::i32, ReduceOp::band, 2);
  Reference const any(DataType::i32, ReduceOp::lor, 2);
  Reference const alone(DataType::i32, ReduceOp::land, 1);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(whole(all.reduced(i)), whole(all.contribution(0, i)) & whole(all.contribution(1, i)));
    EXPECT_EQ(any.reduced(i), any.contribution(0, i) + any.contribution(1, i) > 0 ? 1 : 0);
    EXPECT_EQ(alone.reduced(i), alone.contribution(0, i) != 0 ? 1 : 0);
  }
}

TEST(Reference, RepetitionsDiffer) {
  Reference const first(DataType::f32, ReduceOp::sum, 2, 0);
  Reference const second(DataType::f32, ReduceOp::sum, 2, 1);
  int different = 0;
  for (std::size_t i = 0; i < 100; ++i) different += first.reduced(i) != second.reduced(i) ? 1 : 0;
  EXPECT_GT(different, 50);
}

/// What is seen of 1000 elements that a fault took from elsewhere.
struct Seen {
  bool shifted_input = false;
  bool shifted_result = false;
  bool other_rank = false;
};

Seen seen(Reference const& reference, std::size_t shift, int rank, int other) {
  Seen result;
  for (std::size_t i = 0; i < 1000; ++i) {
    double const input = reference.contribution(rank, i);
    result.shifted_input |= !reference.agrees(input, reference.contribution(rank, i + shift));
    result.shifted_result |= !reference.agrees(reference.reduced(i), reference.reduced(i + shift));
    result.other_rank |= !reference.agrees(input, reference.contribution(other, i));
  }
  return result;
}

TEST(Reference, DataOfAnotherPlaceOrRankIsNoticed) {
  for (int value = 0; weft::is_valid(static_cast<DataType>(value)); ++value) {
    auto const dtype = static_cast<DataType>(value);
    for (auto const op : kOps) {
      if (!supports(dtype, op)) continue;
      for (int const ranks : {2, 4, 16, 64}) {
        Reference const reference(dtype, op, ranks);
        for (std::size_t const shift : {1U, 5U, 8U, 64U, 1000U, 2048U, 1U << 14U, 1U << 20U, 1U << 25U}) {
          auto const found = seen(reference, shift, ranks / 2 - 1, ranks - 1);
          EXPECT_TRUE(found.shifted_input && found.shifted_result && found.other_rank)
              << to_string(dtype) << ' ' << to_string(op) << ' ' << ranks << " ranks, by " << shift;
        }
      }
    }
  }
}

TEST(Reference, AMissingRankIsNoticedInEveryReduction) {
  for (auto const op : {ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
    for (int const ranks : {2, 4, 16, 64}) {
      Reference const reference(DataType::f32, op, ranks);
      bool noticed = false;
      for (std::size_t i = 0; i < 2000; ++i) {
        double without = reference.contribution(0, i);
        for (int rank = 1; rank < ranks - 1; ++rank) {
          double const next = reference.contribution(rank, i);
          without = op == ReduceOp::prod  ? without * next
                    : op == ReduceOp::min ? std::min(without, next)
                                          : std::max(without, next);
        }
        noticed |= without != reference.reduced(i);
      }
      EXPECT_TRUE(noticed) << to_string(op) << ' ' << ranks;
    }
  }
}

TEST(Reference, FirstElementsOfFirstRanksAreToldApart) {
  Reference const reference(DataType::f32, ReduceOp::sum, 4);
  for (int rank = 0; rank < 4; ++rank) {
    for (std::size_t i = 0; i < 4; ++i) {
      for (int other = 0; other < rank; ++other)
        EXPECT_NE(reference.contribution(rank, i), reference.contribution(other, i));
      for (std::size_t before = 0; before < i; ++before)
        EXPECT_NE(reference.contribution(rank, i), reference.contribution(rank, before));
    }
  }
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

TEST(Reference, SumsOfTwoRanks) {
  Reference const reference(DataType::i32, ReduceOp::sum, 2);
  Reference const average(DataType::i32, ReduceOp::avg, 2);
  Reference const floating(DataType::f32, ReduceOp::avg, 2);
  Reference const scaled(DataType::f32, ReduceOp::premul_sum, 2);
  bool truncated = false;
  for (std::size_t i = 0; i < 100; ++i) {
    double const sum = reference.contribution(0, i) + reference.contribution(1, i);
    EXPECT_EQ(reference.reduced(i), sum);
    double const other_sum = average.contribution(0, i) + average.contribution(1, i);
    EXPECT_EQ(average.reduced(i), std::floor(other_sum / 2));
    EXPECT_EQ(floating.reduced(i), sum / 2);
    EXPECT_EQ(scaled.reduced(i), scaled.contribution(0, i) + 2 * scaled.contribution(1, i));
    truncated |= average.reduced(i) != other_sum / 2;
  }
  EXPECT_TRUE(truncated);
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
