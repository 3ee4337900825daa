#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "weft/bucket_plan.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

struct Case {
  std::vector<TensorSpec> specs;
  std::vector<std::size_t> order;
  std::vector<double> ready;  // by tensor
  TransferCost cost;
  std::size_t shards = 1;
};

/// Times and costs are small multiples of powers of two: sums are exact and ties are frequent.
Case random_case(std::uint64_t seed, std::size_t most_tensors) {
  std::mt19937_64 random(seed);
  auto const below = [&](std::size_t bound) { return random() % bound; };
  Case c;
  std::size_t const tensors = below(most_tensors + 1);
  std::size_t const types = 1 + below(3);
  constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::f64};
  for (std::size_t i = 0; i < tensors; ++i) {
    c.specs.push_back({below(4) == 0 ? 0 : below(100), kTypes[below(types)]});
    c.ready.push_back(static_cast<double>(below(1 + below(40))));
  }
  c.order.resize(tensors);
  std::iota(c.order.begin(), c.order.end(), std::size_t{0});
  std::shuffle(c.order.begin(), c.order.end(), random);
  bool const by_time = below(4) != 0;  // else as ranks see it whose order is another's
  if (by_time)
    std::stable_sort(c.order.begin(), c.order.end(), [&](auto a, auto b) { return c.ready[a] < c.ready[b]; });
  c.cost = {static_cast<double>(below(5)), static_cast<double>(below(5)) / 256};
  c.shards = 1 + below(4);
  return c;
}

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// When the last of these buckets arrives, written from the contract: positions [cuts[k], cuts[k + 1]) of the order.
std::optional<double> arrival(Case const& c, std::vector<std::size_t> const& cuts) {
  double now = -std::numeric_limits<double>::infinity();
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    std::size_t bytes = 0;
    for (std::size_t i = cuts[k]; i < cuts[k + 1]; ++i) {
      TensorSpec const& spec = c.specs[c.order[i]];
      if (spec.dtype != c.specs[c.order[cuts[k]]].dtype) return std::nullopt;
      bytes += round_up(spec.count * size_of(spec.dtype), 64);
      now = std::max(now, c.ready[c.order[i]]);
    }
    bytes = round_up(bytes, 64 * c.shards);
    if (bytes != 0) now += c.cost.seconds + c.cost.seconds_per_byte * static_cast<double>(bytes);
  }
  return now;
}

/// Of all 2^(n−1) partitions.
double best_arrival(Case const& c) {
  std::size_t const gaps = c.order.size() - 1;
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t mask = 0; mask < (std::size_t{1} << gaps); ++mask) {
    std::vector<std::size_t> cuts{0};
    for (std::size_t gap = 0; gap < gaps; ++gap) {
      if ((mask >> gap & 1) != 0) cuts.push_back(gap + 1);
    }
    cuts.push_back(c.order.size());
    if (auto const one = arrival(c, cuts)) best = std::min(best, *one);
  }
  return best;
}

std::vector<std::size_t> cuts_of(BucketPlan const& plan) {
  std::vector<std::size_t> cuts{0};
  for (Bucket const& bucket : plan.buckets) cuts.push_back(cuts.back() + bucket.slots.size());
  return cuts;
}

BucketPlan plan_of(Case const& c) {
  return BucketPlan::optimal(c.specs, c.order, c.ready, c.cost, c.shards);
}

void expect_legal(Case const& c, BucketPlan const& plan) {
  std::vector<std::size_t> placed;
  for (Bucket const& bucket : plan.buckets) {
    ASSERT_FALSE(bucket.slots.empty());
    std::size_t end = 0;
    for (BucketSlot const& slot : bucket.slots) {
      placed.push_back(slot.tensor);
      EXPECT_EQ(c.specs[slot.tensor], (TensorSpec{slot.count, bucket.dtype}));
      EXPECT_EQ(slot.offset * size_of(bucket.dtype), end);
      end += round_up(slot.count * size_of(bucket.dtype), 64);
    }
    EXPECT_EQ(bucket.bytes(), round_up(end, 64 * c.shards));
  }
  EXPECT_EQ(placed, c.order);
}

TEST(OptimalPlan, NoneOfAllPartitionsArrivesEarlier) {
  std::size_t buckets = 0;
  std::size_t tensors = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    Case const c = random_case(seed, seed % 50 == 0 ? 13 : 8);
    BucketPlan const plan = plan_of(c);
    expect_legal(c, plan);
    if (c.order.empty()) continue;
    ASSERT_EQ(arrival(c, cuts_of(plan)), best_arrival(c));
    buckets += plan.buckets.size();
    tensors += c.order.size();
  }
  EXPECT_GT(4 * tensors, 5 * buckets) << "the cases are too easy: buckets hold one tensor each";
  EXPECT_GT(buckets, 3000U) << "the cases are too easy: one bucket is best";
}

TEST(OptimalPlan, EveryPrefixArrivesAsEarlyAsItCan) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Case c = random_case(seed, 8);
    if (c.order.empty()) continue;
    std::vector<std::size_t> const cuts = cuts_of(plan_of(c));
    for (std::size_t k = 1; k + 1 < cuts.size(); ++k) {
      Case prefix = c;
      prefix.order.resize(cuts[k]);
      ASSERT_EQ(arrival(c, {cuts.begin(), cuts.begin() + static_cast<std::ptrdiff_t>(k) + 1}), best_arrival(prefix));
    }
  }
}

TEST(OptimalPlan, TiesTakeFewerBucketsThenTheLatestEnd) {
  // One line each. All arrive at 40 however they are cut before the last tensor is ready.
  std::vector<TensorSpec> const specs(4, TensorSpec{16});
  std::vector<std::size_t> const order{0, 1, 2, 3};
  BucketPlan const free = BucketPlan::optimal(specs, order, std::vector<double>(4, 7.0), {0, 0});
  EXPECT_EQ(free.buckets.size(), 1U) << "where nothing costs anything, one bucket is as good as four";
  // Tensor 3 comes so late that the others have arrived, in one bucket or in three.
  BucketPlan const late = BucketPlan::optimal(specs, order, std::vector<double>{0, 0, 0, 40}, {1, 1.0 / 64});
  EXPECT_EQ(cuts_of(late), (std::vector<std::size_t>{0, 3, 4}));
  // Arriving at 9 + 2: after two buckets, or after one.
  BucketPlan const one = BucketPlan::optimal(specs, order, std::vector<double>{0, 2, 5, 9}, {1, 1.0 / 64});
  EXPECT_EQ(cuts_of(one), (std::vector<std::size_t>{0, 1, 2, 3, 4})) << "each prefix arrives as early as it can";
}

TEST(OptimalPlan, NeitherLaterNorDearerThanAnyCaps) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Case const c = random_case(seed, 60);
    if (c.order.empty()) continue;
    double const best = arrival(c, cuts_of(plan_of(c))).value();
    for (std::size_t cap = 1; cap < 40000; cap *= 3) {
      BucketPlan const capped = BucketPlan::build(c.specs, c.order, {cap, cap, cap}, c.shards);
      ASSERT_LE(best, arrival(c, cuts_of(capped)).value()) << "cap " << cap << " seed " << seed;
    }
  }
}

TEST(OptimalPlan, ThousandsOfTensorsAreQuick) {
  std::vector<TensorSpec> const specs(5000, TensorSpec{1000});
  std::vector<std::size_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<double> ready(specs.size());
  for (std::size_t i = 0; i < ready.size(); ++i) ready[i] = 1e-5 * static_cast<double>(i);
  // As fast as they become ready, but for the fixed part: buckets must grow.
  BucketPlan const plan = BucketPlan::optimal(specs, order, ready, {1e-4, 1e-5 / 4032});
  EXPECT_GT(plan.buckets.size(), 5U);
  EXPECT_LT(plan.buckets.size(), 1000U);
}

std::string refusal(Case const& c) {
  try {
    (void)plan_of(c);
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(OptimalPlan, RefusalsNameWhatIsWrong) {
  auto const expect = [](Case const& c, std::string const& part) {
    std::string const text = refusal(c);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  double const nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<TensorSpec> const two(2, TensorSpec{4});
  expect({two, {0, 0}, {1, 2}, {}, 1}, "tensor 0 a second time");
  expect({two, {0, 1}, {1}, {}, 1}, "1 ready times for 2 tensors");
  expect({two, {0, 1}, {1, nan}, {}, 1}, "tensor 1 is ready at nan");
  expect({two, {0, 1}, {1, 1}, {-1, 0}, 1}, "cannot cost -1 s");
  expect({two, {0, 1}, {1, 1}, {0, nan}, 1}, "nan s/byte");
  expect({two, {0, 1}, {1, 1}, {}, 0}, "0 shards");
  expect({{{4, static_cast<DataType>(99)}}, {0}, {1}, {}, 1}, "unknown data type 99");
}

}  // namespace
}  // namespace weft
