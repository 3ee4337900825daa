#include "weft/bucket_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "weft/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kLine = 64;

struct Case {
  std::vector<TensorSpec> specs;
  std::vector<std::size_t> order;
  BucketLimits limits;
};

Case random_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto const below = [&](std::size_t bound) { return random() % bound; };
  Case c;
  std::size_t const tensors = below(60);
  std::size_t const types = 1 + below(10);
  for (std::size_t i = 0; i < tensors; ++i) {
    std::size_t const count = below(5) == 0 ? 0 : below(std::size_t{1} << below(14));
    c.specs.push_back({count, static_cast<DataType>(below(types))});
  }
  c.order.resize(tensors);
  std::iota(c.order.begin(), c.order.end(), std::size_t{0});
  std::shuffle(c.order.begin(), c.order.end(), random);
  c.limits = {1 + below(std::size_t{1} << below(18)), 1 + below(std::size_t{1} << below(18)),
              1 + below(std::size_t{1} << below(18))};
  return c;
}

std::size_t round_up(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

/// The cap of bucket `b` as the header states it, from the plan's own tail.
std::size_t cap_of(BucketPlan const& plan, std::size_t b, BucketLimits const& limits) {
  if (b == 0) return limits.first_bytes;
  std::size_t remaining = 0;
  for (std::size_t later = b; later < plan.buckets.size(); ++later) remaining += plan.buckets[later].bytes();
  return std::min(limits.bytes, std::max(limits.last_bytes, remaining / 2));
}

class RandomPlans : public testing::TestWithParam<std::uint64_t> {
 protected:
  Case const c_ = random_case(GetParam());
  BucketPlan const plan_ = BucketPlan::build(c_.specs, c_.order, c_.limits);
};

TEST_P(RandomPlans, PlacesEveryTensorOnceInOrder) {
  std::vector<std::size_t> placed;
  for (Bucket const& bucket : plan_.buckets) {
    EXPECT_FALSE(bucket.slots.empty());
    for (BucketSlot const& slot : bucket.slots) placed.push_back(slot.tensor);
  }
  EXPECT_EQ(placed, c_.order);
}

TEST_P(RandomPlans, SlotsAreAlignedDisjointAndOfTheBucketsType) {
  for (Bucket const& bucket : plan_.buckets) {
    std::size_t end = 0;
    for (BucketSlot const& slot : bucket.slots) {
      TensorSpec const& spec = c_.specs[slot.tensor];
      EXPECT_EQ(spec.dtype, bucket.dtype);
      EXPECT_EQ(spec.count, slot.count);
      EXPECT_EQ(slot.offset * size_of(bucket.dtype) % kLine, 0U);
      EXPECT_GE(slot.offset, end);
      end = slot.offset + slot.count;
    }
    EXPECT_LE(end, bucket.count);
    EXPECT_EQ(bucket.bytes(), round_up(end * size_of(bucket.dtype))) << "padding is less than a line at the end";
  }
}

TEST_P(RandomPlans, KeepsCapsUnlessATensorIsAlone) {
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    Bucket const& bucket = plan_.buckets[b];
    std::size_t const cap = cap_of(plan_, b, c_.limits);
    auto const has_elements = [](BucketSlot const& slot) { return slot.count != 0; };
    if (std::count_if(bucket.slots.begin(), bucket.slots.end(), has_elements) > 1) {
      EXPECT_LE(bucket.bytes(), cap);
    }
  }
}

TEST_P(RandomPlans, ClosesABucketOnlyWhereTheNextTensorDoesNotFit) {
  for (std::size_t b = 0; b + 1 < plan_.buckets.size(); ++b) {
    Bucket const& bucket = plan_.buckets[b];
    TensorSpec const& next = c_.specs[plan_.buckets[b + 1].slots.front().tensor];
    std::size_t const cap = cap_of(plan_, b, c_.limits);
    if (next.dtype == bucket.dtype) {
      EXPECT_GT(bucket.bytes() + round_up(next.count * size_of(next.dtype)), cap);
      EXPECT_NE(next.count, 0U) << "an empty tensor always fits";
    }
  }
}

TEST_P(RandomPlans, IsAFunctionOfItsInputs) {
  EXPECT_EQ(plan_, BucketPlan::build(c_.specs, c_.order, c_.limits));
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPlans, testing::Range<std::uint64_t>(0, 200));

TEST(BucketPlan, ByHand) {
  // 16 floats are one line. first cap: 2 lines, then 4 lines.
  std::vector<TensorSpec> const specs{{16}, {1}, {16}, {33}, {100}, {16, DataType::f64}, {0, DataType::f64}};
  std::vector<std::size_t> const order{0, 1, 2, 3, 4, 5, 6};
  BucketPlan const plan = BucketPlan::build(specs, order, {128, 256});
  std::vector<Bucket> const expected{
      {DataType::f32, 32, {{0, 0, 16}, {1, 16, 1}}},
      {DataType::f32, 64, {{2, 0, 16}, {3, 16, 33}}},
      {DataType::f32, 112, {{4, 0, 100}}},
      {DataType::f64, 16, {{5, 0, 16}, {6, 16, 0}}},
  };
  EXPECT_EQ(plan.buckets, expected);
}

TEST(BucketPlan, BucketsShrinkTowardsTheEnd) {
  std::vector<TensorSpec> const specs(64, TensorSpec{16});  // one line each
  std::vector<std::size_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  BucketPlan const plan = BucketPlan::build(specs, order, {128, 1280, 128});
  std::vector<std::size_t> lines;
  for (Bucket const& bucket : plan.buckets) lines.push_back(bucket.bytes() / kLine);
  EXPECT_EQ(lines, (std::vector<std::size_t>{2, 20, 20, 11, 5, 3, 2, 1}));
}

TEST(BucketPlan, NoTensorsGiveNoBuckets) {
  EXPECT_TRUE(BucketPlan::build({}, {}).buckets.empty());
}

TEST(BucketPlan, ACapOfOneByteSeparatesAndAHugeOneJoins) {
  std::vector<TensorSpec> const specs(7, TensorSpec{3, DataType::bf16});
  std::vector<std::size_t> const order{6, 5, 4, 3, 2, 1, 0};
  EXPECT_EQ(BucketPlan::build(specs, order, {1, 1}).buckets.size(), 7U);
  std::size_t const huge = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(BucketPlan::build(specs, order, {huge, huge}).buckets.size(), 1U);
}

std::string refusal(std::vector<TensorSpec> const& specs, std::vector<std::size_t> const& order,
                    BucketLimits const& limits = {}) {
  try {
    (void)BucketPlan::build(specs, order, limits);
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

bool mentions(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

TEST(BucketPlan, RefusalsNameWhatIsWrong) {
  std::vector<TensorSpec> const three(3, TensorSpec{4});
  EXPECT_TRUE(mentions(refusal(three, {0, 1}), "2 tensors but there are 3"));
  EXPECT_TRUE(mentions(refusal(three, {0, 1, 3}), "order[2] is 3"));
  EXPECT_TRUE(mentions(refusal(three, {0, 1, 1}), "tensor 1 a second time"));
  EXPECT_TRUE(mentions(refusal(three, {0, 1, 2}, {0, 64}), "first_bytes=0"));
  EXPECT_TRUE(mentions(refusal(three, {0, 1, 2}, {64, 0}), "bytes=0"));
  EXPECT_TRUE(mentions(refusal({{4, static_cast<DataType>(99)}}, {0}), "unknown data type 99"));
  std::size_t const huge = std::numeric_limits<std::size_t>::max();
  EXPECT_TRUE(mentions(refusal({{huge, DataType::u8}}, {0}), "more than can be addressed"));
  EXPECT_TRUE(mentions(refusal({{huge / 8 + 1, DataType::f64}}, {0}, {huge, huge}), "more than can be addressed"));
}

TEST_P(RandomPlans, ShardsAreWholeCacheLinesAndNothingElseChanges) {
  for (std::size_t const shards : {1U, 2U, 3U, 7U, 64U}) {
    BucketPlan const padded = BucketPlan::build(c_.specs, c_.order, c_.limits, shards);
    ASSERT_EQ(padded.buckets.size(), plan_.buckets.size());
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
      EXPECT_EQ(padded.buckets[b].slots, plan_.buckets[b].slots);
      EXPECT_EQ(padded.buckets[b].bytes() % (shards * kLine), 0U);
      EXPECT_GE(padded.buckets[b].bytes(), plan_.buckets[b].bytes());
      EXPECT_LT(padded.buckets[b].bytes(), plan_.buckets[b].bytes() + shards * kLine);
    }
  }
}

TEST(BucketPlan, ShardsMustBePossible) {
  std::vector<TensorSpec> const specs{{5}};
  std::vector<std::size_t> const order{0};
  EXPECT_THROW((void)BucketPlan::build(specs, order, {}, 0), Error);
  EXPECT_THROW((void)BucketPlan::build(specs, order, {}, std::numeric_limits<std::size_t>::max()), Error);
}

}  // namespace
}  // namespace weft
