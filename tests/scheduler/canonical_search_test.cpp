// The search against the best of all orders of first-fit placement, on problems small enough for that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "scheduler/memory/canonical_search.hpp"
#include "scheduler/memory/first_fit.hpp"
#include "scheduler/memory/placement_order.hpp"
#include "scheduler/planned_buffers.hpp"

namespace weft::test {
namespace {

using Outcome = CanonicalSearch::Outcome;

constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max() / 2;

/// In some order every buffer finds the place that it has in a best plan from which nothing can drop.
std::int64_t least_bytes(Sections const& sections) {
  std::vector<int> order(sections.shapes.size());
  std::iota(order.begin(), order.end(), 0);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  do {
    least = std::min(least, bytes_of(sections, first_fit(sections, order)));
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

struct Kind {
  char const* name;
  RandomBuffers buffers;
};

class CanonicalSearchTest : public testing::TestWithParam<Kind> {};

TEST_P(CanonicalSearchTest, FindsWhatThereIsAndNothingBelow) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round << " of seed 11");
    RandomBuffers how = GetParam().buffers;
    how.count = 2 + round % (how.count - 1);
    auto const buffers = random_buffers(how, random);
    Sections const sections = make_sections(buffers);
    std::int64_t const least = least_bytes(sections);
    for (auto const* const keys : {"TWA", "AWT", "S"}) {
      auto const order = placement_order(sections, keys);
      CanonicalSearch at_least(sections, order, least);
      ASSERT_EQ(at_least.run(kEndless, [] { return false; }), Outcome::found) << keys;
      MemoryPlan const plan{.offsets = at_least.offsets(),
                            .bytes = bytes_of(sections, at_least.offsets()),
                            .live_bytes = sections.live_bytes,
                            .least_bytes = sections.live_bytes};
      expect_legal(buffers, plan);
      ASSERT_EQ(plan.bytes, least) << keys;
      CanonicalSearch below(sections, order, least - 1);
      ASSERT_EQ(below.run(kEndless, [] { return false; }), Outcome::impossible) << keys;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Buffers, CanonicalSearchTest,
    testing::Values(Kind{"plain", {.count = 7, .moments = 8, .most_bytes = 6}},
                    Kind{"crowded", {.count = 7, .moments = 4, .most_bytes = 3}},
                    Kind{"aligned", {.count = 6, .moments = 8, .most_bytes = 9, .aligned = true}},
                    Kind{"gaps", {.count = 6, .moments = 9, .most_bytes = 6, .gaps = true}},
                    Kind{"aligned_gaps", {.count = 6, .moments = 9, .most_bytes = 9, .aligned = true, .gaps = true}}),
    [](auto const& kind) { return std::string(kind.param.name); });

TEST(CanonicalSearchLimits, ABudgetAndAStopDecideNothing) {
  std::mt19937_64 random(3);
  auto const buffers = random_buffers({.count = 40, .moments = 30, .most_bytes = 50}, random);
  Sections const sections = make_sections(buffers);
  auto const order = placement_order(sections, "TWA");
  CanonicalSearch poor(sections, order, sections.live_bytes);
  EXPECT_EQ(poor.run(1, [] { return false; }), Outcome::undecided);
  // At a capacity that one section exceeds, nothing has to be searched.
  CanonicalSearch hopeless(sections, order, sections.live_bytes - 1);
  EXPECT_EQ(hopeless.run(1, [] { return false; }), Outcome::impossible);
}

TEST(CanonicalSearchLimits, WhereAGapKeepsUpperBytesItProvesNothing) {
  // b fits below the bytes that a keeps, which the search holds to be a's own.
  std::vector<PlannedBuffer> const buffers{
      {.name = "a", .life = {0, 3}, .bytes = 10, .gaps = {{.when = {1, 2}, .kept_begin = 6, .kept_end = 10}}},
      {.name = "b", .life = {1, 2}, .bytes = 6}};
  Sections const sections = make_sections(buffers);
  EXPECT_EQ(sections.live_bytes, 10);
  CanonicalSearch search(sections, placement_order(sections, "TWA"), 10);
  EXPECT_EQ(search.run(kEndless, [] { return false; }), Outcome::inconclusive);
}

TEST(CanonicalSearchLimits, EndsWhereBuffersLieTooDeepUponOneAnother) {
  // Each meets those next to it: all that begin at multiples of 3 are placed before any of the others.
  std::vector<PlannedBuffer> buffers;
  for (std::int64_t i = 0; i < 10'000; ++i) buffers.push_back({.name = {}, .life = {i, i + 3}, .bytes = 1});
  Sections const sections = make_sections(buffers);
  CanonicalSearch search(sections, placement_order(sections, "AWT"), 3);
  EXPECT_EQ(search.run(kEndless, [] { return false; }), Outcome::inconclusive);
}

}  // namespace
}  // namespace weft::test
