#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "gathers.hpp"
#include "random_graph.hpp"
#include "scheduler/order/exact_order.hpp"
#include "scheduler/order/problem.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/memory_outlook.hpp"

namespace weft {
namespace {

using test::gathers;
using test::random_graph;
using test::unit_cluster;

TEST(MemoryOutlook, CountsAsAnyoneWould) {
  std::mt19937 random(21);
  for (int round = 0; round < 200; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 3 + random() % 25});
    CostModel const model(unit_cluster());
    Problem const problem(graph, model);
    auto const serial = problem.order();
    MemoryOutlook memory(problem, serial);
    std::set<TaskId> started;
    std::set<TaskId> ended;
    auto const live = [&](std::set<TaskId> const& begun, std::set<TaskId> const& over) {
      std::int64_t bytes = 0;
      for (auto const& storage : problem.storages()) {
        if (storage.users.empty() && !storage.kept) continue;
        bool const there = storage.first == kNone || begun.count(storage.first) > 0;
        bool const needed = storage.kept || std::any_of(storage.users.begin(), storage.users.end(),
                                                        [&](TaskId user) { return over.count(user) == 0; });
        if (there && needed) bytes += storage.bytes;
      }
      return bytes;
    };
    auto const outlook = [&] {
      auto begun = started;
      std::int64_t most = 0;
      auto over = started;  // what runs has ended
      for (TaskId const task : serial) {
        if (begun.count(task) > 0) continue;
        begun.insert(task);
        most = std::max(most, live(begun, over));
        over.insert(task);
      }
      return most;
    };
    EXPECT_EQ(memory.outlook(), serial_peak(problem, serial));
    while (started.size() < serial.size() || ended.size() < serial.size()) {
      std::vector<TaskId> can;
      for (TaskId const task : serial) {
        auto const before = problem.before(task);
        if (started.count(task) == 0 &&
            std::all_of(before.begin(), before.end(), [&](TaskId each) { return ended.count(each) > 0; })) {
          can.push_back(task);
        }
      }
      std::vector<TaskId> running;
      for (TaskId const task : started) {
        if (ended.count(task) == 0) running.push_back(task);
      }
      if (!can.empty() && (running.empty() || random() % 2 == 0)) {
        TaskId const task = can[random() % can.size()];
        auto const prospect = memory.prospect(task);
        memory.start(task);
        started.insert(task);
        ASSERT_EQ(memory.live(), live(started, ended));
        ASSERT_EQ(prospect.live, memory.live());
        ASSERT_EQ(memory.outlook(), outlook());
        ASSERT_EQ(prospect.outlook, memory.outlook());
      } else {
        TaskId const task = running[random() % running.size()];
        memory.end(task);
        ended.insert(task);
        ASSERT_EQ(memory.live(), live(started, ended));
      }
    }
  }
}

TEST(SerialOrder, EveryOrderIsLegal) {
  std::mt19937 random(22);
  for (int round = 0; round < 200; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 1 + random() % 40});
    CostModel const model(unit_cluster());
    Problem const problem(graph, model);
    for (auto const& start : {problem.order(), as_soon_as_possible(problem), depth_first(problem)}) {
      for (auto const& order : {start, just_in_time(problem, start, serial_peak(problem, start))}) {
        ASSERT_EQ(order.size(), problem.tasks().size());
        std::vector<int> place(order.size(), -1);
        for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
        for (TaskId const task : order) {
          ASSERT_GE(place[static_cast<std::size_t>(task)], 0);
          for (TaskId const earlier : problem.before(task)) {
            ASSERT_LT(place[static_cast<std::size_t>(earlier)], place[static_cast<std::size_t>(task)]);
          }
        }
        EXPECT_LE(serial_peak(problem, low_memory_order(problem)), serial_peak(problem, order));
        EXPECT_LE(serial_bound(problem), serial_peak(problem, order));
      }
    }
  }
}

TEST(SerialOrder, GathersComeWhenTheyAreNeeded) {
  OpGraph const graph = gathers(8, 1 << 21, 1);
  CostModel const model(unit_cluster());
  Problem const problem(graph, model);
  // As soon as possible all eight weights are there at once; just in time one is.
  EXPECT_EQ(serial_peak(problem, as_soon_as_possible(problem)) - problem.resident_bytes(), (std::int64_t{8} << 21) + 2);
  EXPECT_EQ(serial_peak(problem, low_memory_order(problem)) - problem.resident_bytes(), (std::int64_t{1} << 21) + 2);
}

/// The least peak over all orders, by trying every one of them.
std::int64_t least_peak(Problem const& problem, std::vector<TaskId>& order, std::vector<bool>& run) {
  if (order.size() == problem.tasks().size()) return serial_peak(problem, order);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < run.size(); ++i) {
    auto const before = problem.before(static_cast<TaskId>(i));
    auto const has_run = [&](TaskId task) { return run[static_cast<std::size_t>(task)]; };
    if (run[i] || !std::all_of(before.begin(), before.end(), has_run)) continue;
    run[i] = true;
    order.push_back(static_cast<TaskId>(i));
    least = std::min(least, least_peak(problem, order, run));
    order.pop_back();
    run[i] = false;
  }
  return least;
}

TEST(ExactOrder, IsTheBestOfAllOrders) {
  std::mt19937 random(31);
  for (int round = 0; round < 300; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 1 + random() % 8});
    CostModel const model(unit_cluster());
    Problem const problem(graph, model);
    auto const order = exact_order(problem);
    ASSERT_TRUE(order);
    std::vector<TaskId> tried;
    std::vector<bool> run(problem.tasks().size(), false);
    EXPECT_EQ(serial_peak(problem, *order), least_peak(problem, tried, run)) << "round " << round;
  }
}

TEST(ExactOrder, IsFoundForGraphsOfTwentyFour) {
  std::mt19937 random(32);
  int better = 0;
  for (int round = 0; round < 1000; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 24});
    CostModel const model(unit_cluster());
    Problem const problem(graph, model);
    auto const order = exact_order(problem);
    ASSERT_TRUE(order) << "round " << round;
    std::int64_t const exact = serial_peak(problem, *order);
    EXPECT_EQ(serial_peak(problem, low_memory_order(problem)), exact);
    std::int64_t heuristic = std::numeric_limits<std::int64_t>::max();
    for (auto const& start : {problem.order(), as_soon_as_possible(problem), depth_first(problem)}) {
      heuristic = std::min(heuristic, serial_peak(problem, start));
      heuristic = std::min(heuristic, serial_peak(problem, just_in_time(problem, start, heuristic)));
    }
    EXPECT_LE(exact, heuristic);
    better += exact < heuristic ? 1 : 0;
  }
  EXPECT_GT(better, 50);
}

TEST(ExactOrder, GivesUpOnLargerGraphs) {
  std::mt19937 random(33);
  CostModel const model(unit_cluster());
  OpGraph const graph = random_graph(random, {.ops = 25});
  EXPECT_FALSE(exact_order(Problem(graph, model)));
  OpGraph const smaller = random_graph(random, {.ops = 20});
  EXPECT_FALSE(exact_order(Problem(smaller, model), 3));
}

}  // namespace
}  // namespace weft
