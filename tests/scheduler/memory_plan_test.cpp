#include "weft/memory_plan.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <random>
#include <vector>

#include "scheduler/memory/first_fit.hpp"
#include "scheduler/memory/placement_order.hpp"
#include "scheduler/planned_buffers.hpp"

namespace weft::test {
namespace {

using std::chrono::milliseconds;

/// No plan of these below takes the search as long.
constexpr milliseconds kPlenty{60'000};

TEST(MemoryPlanTest, NothingNeedsNothing) {
  MemoryPlan const none = plan_memory({});
  EXPECT_TRUE(none.offsets.empty());
  EXPECT_EQ(none.bytes, 0);
  std::vector<PlannedBuffer> const idle{{.name = "never", .life = {4, 4}, .bytes = 100},
                                        {.name = "empty", .life = {0, 9}, .bytes = 0}};
  MemoryPlan const plan = plan_memory(idle);
  expect_legal(idle, plan);
  EXPECT_EQ(plan.bytes, 0);
}

TEST(MemoryPlanTest, ReusesWhatIsNoLongerNeeded) {
  std::vector<PlannedBuffer> const chain{{.name = "a", .life = {0, 2}, .bytes = 100},
                                         {.name = "b", .life = {1, 3}, .bytes = 50},
                                         {.name = "c", .life = {2, 4}, .bytes = 100}};
  MemoryPlan const plan = plan_memory(chain);
  expect_legal(chain, plan);
  EXPECT_EQ(plan.bytes, 150);
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
}

TEST(MemoryPlanTest, AGapLendsItsBytes) {
  std::vector<PlannedBuffer> buffers{{.name = "a", .life = {0, 9}, .bytes = 100, .gaps = {{.when = {3, 6}}}},
                                     {.name = "b", .life = {3, 6}, .bytes = 100}};
  MemoryPlan plan = plan_memory(buffers);
  expect_legal(buffers, plan);
  EXPECT_EQ(plan.bytes, 100);
  buffers[0].gaps[0].kept_end = 30;
  plan = plan_memory(buffers);
  expect_legal(buffers, plan);
  EXPECT_EQ(plan.bytes, 130);
  buffers[1].life.end = 7;
  plan = plan_memory(buffers);
  expect_legal(buffers, plan);
  EXPECT_EQ(plan.bytes, 200);
}

TEST(MemoryPlanTest, OffsetsAreAligned) {
  std::vector<PlannedBuffer> const buffers{{.name = "a", .life = {0, 2}, .bytes = 1, .alignment = 256},
                                           {.name = "b", .life = {0, 2}, .bytes = 1, .alignment = 256},
                                           {.name = "c", .life = {0, 2}, .bytes = 100, .alignment = 3}};
  MemoryPlan const plan = plan_memory(buffers);
  expect_legal(buffers, plan);
  EXPECT_EQ(plan.bytes, 257);
  EXPECT_EQ(plan.least_bytes, 257) << "shown to be the best, although only 102 are live";
}

TEST(MemoryPlanTest, RandomPlansAreLegalAndNoWorseThanFirstFit) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round << " of seed 5");
    auto const buffers = random_buffers({.count = 10 + 3 * round,
                                         .moments = 5 + round,
                                         .most_bytes = 1000,
                                         .aligned = round % 2 == 1,
                                         .gaps = round % 4 >= 2},
                                        random);
    MemoryPlan const plan = plan_memory(buffers, {.time_limit = milliseconds(100)});
    expect_legal(buffers, plan);
    Sections const sections = make_sections(buffers);
    for (auto const* const keys : {"TWA", "AWT", "WTA", "SWT"}) {
      EXPECT_LE(plan.bytes, bytes_of(sections, first_fit(sections, placement_order(sections, keys)))) << keys;
    }
  }
}

TEST(MemoryPlanTest, IsTheSameForAnyNumberOfThreads) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 10; ++round) {
    auto const buffers = random_buffers({.count = 24, .moments = 12, .most_bytes = 20}, random);
    MemoryPlan const one = plan_memory(buffers, {.time_limit = kPlenty, .threads = 1});
    ASSERT_EQ(one.bytes, one.least_bytes) << "round " << round << " of seed 9 is no problem to compare";
    for (int const threads : {2, 3, 8}) {
      EXPECT_EQ(plan_memory(buffers, {.time_limit = kPlenty, .threads = threads}).offsets, one.offsets);
    }
  }
}

/// 10 bytes are live, and no plan has fewer than 11: found among random problems, shown by all orders of first fit.
std::vector<PlannedBuffer> awkward() {
  std::vector<PlannedBuffer> buffers;
  for (auto const& [begin, end, bytes] : std::initializer_list<std::array<std::int64_t, 3>>{
           {4, 5, 2}, {2, 5, 1}, {5, 6, 4}, {3, 6, 4}, {0, 3, 3}, {2, 4, 3}, {3, 5, 1}, {4, 6, 2}, {1, 3, 3}}) {
    buffers.push_back({.name = {}, .life = {begin, end}, .bytes = bytes});
  }
  return buffers;
}

TEST(MemoryPlanTest, SaysWhetherAnythingFits) {
  auto const buffers = awkward();
  MemoryPlan const best = plan_memory(buffers, {.time_limit = kPlenty});
  EXPECT_EQ(best.live_bytes, 10);
  EXPECT_EQ(best.bytes, 11);
  EXPECT_EQ(best.least_bytes, 11);
  MemoryPlan const fits = plan_memory(buffers, {.capacity = 11, .time_limit = kPlenty});
  expect_legal(buffers, fits);
  EXPECT_EQ(fits.bytes, 11);
  MemoryPlan const too_small = plan_memory(buffers, {.capacity = 10, .time_limit = kPlenty});
  expect_legal(buffers, too_small);
  EXPECT_EQ(too_small.least_bytes, 11);
}

TEST(MemoryPlanTest, EndsWhereMoreTimeFindsNothing) {
  // b fits below the bytes that a keeps, which no search looks at: none will do better than the first plan.
  std::vector<PlannedBuffer> const buffers{
      {.name = "a", .life = {0, 3}, .bytes = 10, .gaps = {{.when = {1, 2}, .kept_begin = 6, .kept_end = 10}}},
      {.name = "b", .life = {1, 2}, .bytes = 6}};
  for (auto const& capacity : {std::optional<std::int64_t>(), std::optional<std::int64_t>(10)}) {
    MemoryPlan const plan = plan_memory(buffers, {.capacity = capacity, .time_limit = std::chrono::hours(1)});
    expect_legal(buffers, plan);
    EXPECT_EQ(plan.bytes, 16);
    EXPECT_EQ(plan.least_bytes, 10);
  }
}

TEST(MemoryPlanTest, TimeLimitsAndTellsOfProgress) {
  // Whether alignments waste less in another of 40! orders nobody can tell soon.
  std::mt19937_64 random(2);
  auto buffers = random_buffers({.count = 40, .moments = 60, .most_bytes = 1000}, random);
  for (auto& buffer : buffers) {
    buffer.life = {0, 1};
    buffer.alignment = 64;
  }
  std::atomic<int> told{0};
  MemoryPlan const plan =
      plan_memory(buffers, {.time_limit = milliseconds(2500), .progress = [&](MemoryPlanProgress const& now) {
                              ++told;
                              EXPECT_GE(now.bytes, now.least_bytes);
                            }});
  expect_legal(buffers, plan);
  ASSERT_GT(plan.bytes, plan.least_bytes) << "no problem to be interrupted";
  EXPECT_GE(told, 1);
  EXPECT_LE(told, 3);
}

}  // namespace
}  // namespace weft::test
