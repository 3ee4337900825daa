#include "sharding/gather_planner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>

#include "weft/error.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kLine = 64;

std::vector<PlannedUnit> units_of(std::vector<std::size_t> const& lines) {
  std::vector<PlannedUnit> units;
  for (std::size_t const count : lines) units.push_back({"u" + std::to_string(units.size()), count * kLine});
  return units;
}

/// Follows a planner's actions and checks that units in the pool never overlap, and what is asked of it.
class Pool {
 public:
  Pool(std::vector<PlannedUnit> const& units, GatherPolicy const& policy)
      : units_(units), policy_(policy), planner_(units, policy) {}

  void begin(Use const& use) {
    planner_.begin(use);
    follow();
    ASSERT_TRUE(here_.count(use.unit) == 1 || units_[use.unit].bytes == 0) << "unit " << use.unit;
  }
  void end(Use const& use) {
    planner_.end(use);
    follow();
  }
  void end_step() {
    planner_.end_step();
    follow();
  }
  /// "+2" a gather of unit 2, "-2" its release, in order; forgets them.
  std::string log() { return std::exchange(log_, ""); }
  GatherPlanner& planner() { return planner_; }
  [[nodiscard]] std::map<std::size_t, std::size_t> const& here() const { return here_; }

 private:
  void follow() {
    for (GatherAction const& action : planner_.actions()) {
      bool const gather = action.kind == GatherAction::Kind::gather;
      log_ += (gather ? "+" : "-") + std::to_string(action.unit) + " ";
      if (!gather) {
        ASSERT_EQ(here_.erase(action.unit), 1U) << "released what is not here";
        continue;
      }
      std::size_t const end = action.offset + units_[action.unit].bytes;
      ASSERT_LE(end, policy_.capacity);
      ASSERT_EQ(action.offset % kLine, 0U);
      for (auto const& [other, offset] : here_) {
        ASSERT_TRUE(end <= offset || offset + units_[other].bytes <= action.offset || units_[other].bytes == 0 ||
                    units_[action.unit].bytes == 0)
            << action.unit << " over " << other;
      }
      ASSERT_TRUE(here_.emplace(action.unit, action.offset).second) << "gathered twice";
    }
    planner_.clear();
  }

  std::vector<PlannedUnit> units_;
  GatherPolicy policy_;
  GatherPlanner planner_;
  std::map<std::size_t, std::size_t> here_;
  std::string log_;
};

void run_step(Pool& pool, std::size_t units) {
  for (std::size_t u = 0; u < units; ++u) {
    pool.begin({u, Phase::forward});
    pool.end({u, Phase::forward});
  }
  for (std::size_t u = units; u-- > 0;) {
    pool.begin({u, Phase::backward});
    pool.end({u, Phase::backward});
  }
  pool.end_step();
}

TEST(GatherPlanner, SendsForTheNextUnitBeforeTheLastOneIsUsedUp) {
  auto const units = units_of({2, 1, 1});
  Pool pool(units, {4 * kLine, 1, true});
  pool.begin({0, Phase::forward});
  EXPECT_EQ(pool.log(), "+0 +1 ");  // unit 1 is on its way while unit 0 is used
  pool.end({0, Phase::forward});
  EXPECT_EQ(pool.log(), "-0 +2 ");  // as soon as there is room
  pool.begin({1, Phase::forward});
  pool.end({1, Phase::forward});
  EXPECT_EQ(pool.log(), "");  // backward's second unit stays
  pool.begin({2, Phase::forward});
  pool.end({2, Phase::forward});
  EXPECT_EQ(pool.log(), "");  // and its first
  pool.begin({2, Phase::backward});
  EXPECT_EQ(pool.log(), "");
  pool.end({2, Phase::backward});
  EXPECT_EQ(pool.log(), "-2 +0 ");
  pool.begin({1, Phase::backward});
  pool.end({1, Phase::backward});
  pool.begin({0, Phase::backward});
  pool.end({0, Phase::backward});
  EXPECT_EQ(pool.log(), "-1 -0 ");
  pool.end_step();
  EXPECT_EQ(pool.log(), "+0 +1 ");  // for the next step
}

// Errors name a gather by what it is meant for, not by the turn in which it is sent.
TEST(GatherPlanner, WhatIsGatheredAheadIsMeantForTheUseToCome) {
  GatherPlanner planner(units_of({1, 1, 1}), {2 * kLine, 1, true});
  std::string log;
  auto const note = [&] {
    for (GatherAction const& action : planner.actions()) {
      if (action.kind == GatherAction::Kind::release) continue;
      log += std::to_string(action.unit) + (action.phase == Phase::forward ? "f " : "b ");
    }
    planner.clear();
  };
  for (int step = 0; step < 2; ++step) {
    log.clear();
    for (Phase const phase : {Phase::forward, Phase::backward}) {
      for (std::size_t unit = 0; unit < 3; ++unit) {
        planner.begin({unit, phase});
        planner.end({unit, phase});
        note();
      }
      log += "| ";
    }
    planner.end_step();
    note();
  }
  EXPECT_EQ(log, "2f 0b 1b | 2b | 0f 1f ");
}

TEST(GatherPlanner, WithoutPrefetchNothingComesEarly) {
  auto const units = units_of({1, 1, 1});
  Pool pool(units, {kLine, 0, true});
  run_step(pool, 3);
  EXPECT_EQ(pool.log(), "+0 -0 +1 -1 +2 -2 +1 -1 +0 -0 ");
}

TEST(GatherPlanner, KeptUnitsAreGatheredOnce) {
  auto const units = units_of({1, 2, 1});
  Pool pool(units, {4 * kLine, 1, false});
  run_step(pool, 3);
  EXPECT_EQ(pool.log(), "+0 +1 +2 -2 -1 -0 +0 +1 ");
}

TEST(GatherPlanner, KeptUnitsMakeRoomUnderTheCapThoseNeededLastFirst) {
  auto const units = units_of({1, 1, 1});
  Pool pool(units, {2 * kLine, 0, false});
  run_step(pool, 3);
  EXPECT_EQ(pool.log(), "+0 +1 -0 +2 -2 -1 +0 -0 ");
  EXPECT_LE(pool.planner().peak_bytes(), 2 * kLine);
}

TEST(GatherPlanner, LearnsTheOrderOfUse) {
  auto const units = units_of({1, 1, 1});
  Pool pool(units, {2 * kLine, 1, true});
  std::vector<Use> const order{{2, Phase::forward},  {0, Phase::forward},  {1, Phase::forward},
                               {0, Phase::backward}, {1, Phase::backward}, {2, Phase::backward}};
  for (int step = 0; step < 2; ++step) {
    pool.log();
    for (Use const& use : order) {
      pool.begin(use);
      pool.end(use);
    }
    pool.end_step();
  }
  // Each gather of the second step comes one use ahead, none in vain.
  EXPECT_EQ(pool.log(), "-2 +1 -0 +2 -1 -2 +2 +0 ");
}

TEST(GatherPlanner, AUnitInUseIsNeverMadeToLeave) {
  auto const units = units_of({2, 2, 2});
  GatherPlanner planner(units, {5 * kLine, 0, true});
  planner.begin({0, Phase::forward});
  planner.begin({1, Phase::forward});
  try {
    planner.begin({2, Phase::forward});
    ADD_FAILURE() << "found room";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("'u2' of 128 bytes: 'u0', 'u1' are in use"), std::string::npos)
        << error.what();
  }
  planner.end({0, Phase::forward});
  planner.begin({2, Phase::forward});
  EXPECT_TRUE(planner.is_gathered(2));
}

// Random programs, in and out of the expected order: units in use are always there, in places of their own, under the
// cap; what is not in use is there because it is expected soon or kept.
TEST(GatherPlanner, AnyProgramFindsItsUnits) {
  std::mt19937_64 random(71);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::size_t> lines(1 + random() % 7);
    std::size_t largest = 1;
    std::size_t total = 0;
    for (std::size_t& count : lines) {
      count = random() % 5 == 0 ? 0 : random() % 40;
      largest = std::max(largest, count);
      total += count;
    }
    GatherPolicy const policy{(largest + random() % (total + 1)) * kLine, random() % 4, random() % 2 == 0};
    Pool pool(units_of(lines), policy);
    for (int step = 0; step < 4; ++step) {
      if (random() % 2 == 0) {
        run_step(pool, lines.size());
      } else {
        for (std::size_t use = random() % 20; use-- > 0;) {
          Use const one{random() % lines.size(), random() % 2 == 0 ? Phase::forward : Phase::backward};
          pool.begin(one);
          pool.end(one);
        }
        pool.end_step();
      }
      ASSERT_LE(pool.planner().peak_bytes(), policy.capacity);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(GatherPlanner, TheDefaultCapacityIsEnoughAndLittleMore) {
  std::mt19937_64 random(72);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::size_t> lines(1 + random() % 9);
    for (std::size_t& count : lines) count = random() % 100;
    auto const units = units_of(lines);
    GatherPolicy policy{0, random() % 4, random() % 2 == 0};
    policy.capacity = capacity_for(units, policy);
    Pool pool(units, policy);
    for (int step = 0; step < 3; ++step) run_step(pool, units.size());
    EXPECT_FALSE(pool.planner().was_short());
    if (policy.reshard_after_forward && policy.prefetch <= 1) {
      std::size_t pair = 0;
      for (std::size_t u = 0; u < lines.size(); ++u) {
        bool const two = policy.prefetch == 1 && u + 1 < lines.size();
        pair = std::max(pair, lines[u] + (two ? lines[u + 1] : 0));
      }
      EXPECT_EQ(policy.capacity, pair * kLine) << "neighbours from both ends leave no gaps";
    }
  }
  auto const equal = units_of({3, 3, 3, 3, 3, 3});
  EXPECT_EQ(capacity_for(equal, {0, 2, true}), 9 * kLine);
  EXPECT_EQ(capacity_for(equal, {0, 2, false}), 18 * kLine);
  EXPECT_EQ(capacity_for(equal, {0, 50, true}), 18 * kLine);
}

TEST(GatherPlanner, AsFarAheadAsCanBeIsAllUnits) {
  auto const units = units_of({1, 1, 1, 1});
  std::vector<std::string> logs;
  for (std::size_t const prefetch : {std::size_t{4}, std::numeric_limits<std::size_t>::max()}) {
    Pool pool(units, {4 * kLine, prefetch, true});
    for (int step = 0; step < 2; ++step) run_step(pool, units.size());
    logs.push_back(pool.log());
  }
  EXPECT_EQ(logs[0], logs[1]);
}

TEST(UseOrder, RemembersTheLastPassesOfALongStep) {
  UseOrder order(2);
  std::vector<Use> const training{{0, Phase::forward}, {1, Phase::forward}, {1, Phase::backward}, {0, Phase::backward}};
  for (int batch = 0; batch < 10'000; ++batch) {  // of an evaluation
    for (std::size_t const unit : {0U, 1U}) order.used({unit, Phase::forward});
  }
  for (Use const& use : training) order.used(use);
  order.end_step();
  auto const foretold = order.upcoming();
  EXPECT_LE(foretold.size(), 1000U);
  EXPECT_TRUE(std::ranges::equal(foretold.last(training.size()), training));
  for (Use const& use : training) order.used(use);
  order.end_step();
  EXPECT_TRUE(std::ranges::equal(order.upcoming(), training));
}

// Steps that begin with nothing lie alike: a CUDA graph's addresses stay.
TEST(BlockMap, AnEmptyMapBeginsAnew) {
  BlockMap map(1000);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(map.place(100), 0U);
    EXPECT_EQ(map.place(200), 800U);
    EXPECT_EQ(map.place(300), 100U);
    map.release(800, 200);
    map.release(0, 100);
    map.release(100, 300);
  }
}

TEST(BlockMap, BlocksNeverOverlapAndGapsAreFound) {
  std::mt19937_64 random(73);
  for (int round = 0; round < 200; ++round) {
    std::size_t const capacity = 1 + random() % 50;
    BlockMap map(capacity);
    std::vector<std::optional<std::size_t>> owner(capacity);
    std::map<std::size_t, std::pair<std::size_t, std::size_t>> blocks;  // offset, size by id
    for (std::size_t id = 0; id < 60; ++id) {
      if (!blocks.empty() && random() % 2 == 0) {
        auto const victim = std::next(blocks.begin(), static_cast<std::ptrdiff_t>(random() % blocks.size()));
        map.release(victim->second.first, victim->second.second);
        for (auto& cell : owner) {
          if (cell == victim->first) cell.reset();
        }
        blocks.erase(victim);
      }
      std::size_t const size = 1 + random() % 12;
      std::size_t gap = 0;
      std::size_t largest_gap = 0;
      for (auto const& cell : owner) {
        gap = cell ? 0 : gap + 1;
        largest_gap = std::max(largest_gap, gap);
      }
      auto const offset = map.place(size);
      ASSERT_EQ(offset.has_value(), largest_gap >= size);
      if (!offset) continue;
      ASSERT_LE(*offset + size, capacity);
      for (std::size_t at = *offset; at < *offset + size; ++at) {
        ASSERT_FALSE(owner[at]);
        owner[at] = id;
      }
      blocks[id] = {*offset, size};
      std::size_t used = 0;
      for (auto const& [key, block] : blocks) used += block.second;
      ASSERT_EQ(map.used(), used);
    }
  }
}

}  // namespace
}  // namespace weft::test
