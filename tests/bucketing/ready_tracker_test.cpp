#include "bucketing/ready_tracker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "weft/error.hpp"

namespace weft {
namespace {

BucketPlan plan_of(std::size_t tensors, std::size_t per_bucket) {
  std::vector<TensorSpec> const specs(tensors, TensorSpec{16});
  std::vector<std::size_t> order(tensors);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return BucketPlan::build(specs, order, {64 * per_bucket, 64 * per_bucket});
}

TEST(ReadyTracker, AgreesWithSetsOverRandomSteps) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 100; ++round) {
    BucketPlan const plan = plan_of(1 + random() % 20, 1 + random() % 5);
    ReadyTracker tracker(plan);
    std::size_t const tensors = tracker.tensor_count();
    std::set<std::size_t> with_gradient;
    for (int pass = 0; pass < 6; ++pass) {
      std::vector<std::uint64_t> order(tensors);
      std::iota(order.begin(), order.end(), std::uint64_t{0});
      std::shuffle(order.begin(), order.end(), random);
      order.resize(random() % (tensors + 1));
      std::set<std::size_t> marked;
      for (std::uint64_t const tensor : order) {
        bool const filled = tracker.mark(tensor);
        marked.insert(tensor);
        with_gradient.insert(tensor);
        std::size_t const bucket = tracker.bucket_of(tensor);
        auto const& slots = plan.buckets[bucket].slots;
        bool const expected =
            std::all_of(slots.begin(), slots.end(), [&](BucketSlot const& s) { return marked.count(s.tensor) != 0; });
        ASSERT_EQ(filled, expected);
        ASSERT_EQ(tracker.is_full(bucket), expected);
      }
      std::vector<std::uint64_t> const observed = tracker.observed_order();
      ASSERT_EQ(observed.size(), tensors);
      ASSERT_TRUE(std::equal(order.begin(), order.end(), observed.begin()));
      ASSERT_EQ(std::set(observed.begin(), observed.end()).size(), tensors);
      for (std::size_t t = 0; t < tensors; ++t) ASSERT_EQ(tracker.has_gradient(t), with_gradient.count(t) != 0);
      ASSERT_EQ(tracker.any_marked(), !order.empty());
      if (random() % 2 == 0) {
        tracker.end_pass();
      } else {
        tracker.end_step();
        with_gradient.clear();
      }
      ASSERT_FALSE(tracker.any_marked());
    }
  }
}

TEST(ReadyTracker, RefusesASecondMarkAndBadIndices) {
  ReadyTracker tracker(plan_of(3, 2));
  tracker.mark(1);
  EXPECT_THROW(tracker.mark(1), Error);
  EXPECT_THROW(tracker.mark(3), Error);
  tracker.end_pass();
  EXPECT_NO_THROW(tracker.mark(1));
}

}  // namespace
}  // namespace weft
