#include "weft/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "random_graph.hpp"
#include "scheduler/plan/bounds.hpp"
#include "scheduler/plan/exact_order.hpp"
#include "scheduler/plan/exhaustive_search.hpp"
#include "scheduler/plan/memory_outlook.hpp"
#include "scheduler/plan/merge_collectives.hpp"
#include "scheduler/plan/problem.hpp"
#include "scheduler/plan/run_tasks.hpp"
#include "scheduler/plan/serial_order.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using test::random_graph;
using test::unit_cluster;

/// Recounts a schedule from the graph alone: who ran when, what was live. Shares nothing with the planner but Problem.
void expect_legal(OpGraph const& graph, CostModel const& model, Schedule const& schedule) {
  std::vector<std::vector<OpId>> merged;
  for (auto const& launch : schedule.launches) {
    if (launch.ops.size() > 1) merged.push_back(launch.ops);
  }
  std::vector<double> start(graph.ops.size(), -1);
  std::vector<double> end(graph.ops.size(), -1);
  std::vector<std::size_t> place(graph.ops.size());
  for (std::size_t i = 0; i < schedule.launches.size(); ++i) {
    auto const& launch = schedule.launches[i];
    for (OpId const op : launch.ops) {
      auto const id = static_cast<std::size_t>(op);
      EXPECT_LT(start[id], 0) << "op " << op << " runs twice";
      start[id] = launch.start_s;
      end[id] = launch.end_s;
      place[id] = i;
      if (launch.ops.size() > 1) {
        EXPECT_EQ(graph.ops[id].collective.kind,
                  graph.ops[static_cast<std::size_t>(launch.ops.front())].collective.kind);
        EXPECT_EQ(graph.ops[id].collective.group,
                  graph.ops[static_cast<std::size_t>(launch.ops.front())].collective.group);
      }
    }
  }
  auto const writers = writers_of(graph);
  double last = 0;
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    ASSERT_GE(start[op], 0) << "op " << op << " does not run";
    last = std::max(last, end[op]);
    auto before = graph.ops[op].after;
    for (TensorId const tensor : graph.ops[op].reads) {
      if (writers[static_cast<std::size_t>(tensor)] != kNone)
        before.push_back(writers[static_cast<std::size_t>(tensor)]);
    }
    for (OpId const earlier : before) {
      EXPECT_LE(end[static_cast<std::size_t>(earlier)], start[op] + 1e-9) << earlier << " before " << op;
    }
  }
  EXPECT_NEAR(last, schedule.makespan_s, 1e-9);
  // One thing at a time on each resource.
  std::map<Resource, double> until;
  for (auto const& launch : schedule.launches) {
    if (launch.end_s <= launch.start_s) continue;
    EXPECT_GE(launch.start_s, until[launch.resource] - 1e-9);
    until[launch.resource] = launch.end_s;
  }
  // Bytes live after each start, by looking at every storage.
  Problem const problem(graph, model, merged);
  std::int64_t peak = 0;
  for (std::size_t i = 0; i < schedule.launches.size(); ++i) {
    auto const& launch = schedule.launches[i];
    std::int64_t live = 0;
    for (auto const& storage : problem.storages()) {
      if (storage.users.empty() && !storage.kept) continue;
      auto const op_of = [&](TaskId task) { return static_cast<std::size_t>(problem.task(task).ops.front()); };
      bool const there = storage.first == kNone || place[op_of(storage.first)] <= i;
      bool needed = storage.kept;
      for (TaskId const user : storage.users) {
        // A task without length that started before has ended before too.
        bool const ended = end[op_of(user)] <= launch.start_s + 1e-12 && place[op_of(user)] < i &&
                           (end[op_of(user)] < launch.start_s || place[op_of(user)] < i);
        needed = needed || !ended;
      }
      if (there && needed) live += storage.bytes;
    }
    EXPECT_LE(launch.live_bytes, schedule.capacity);
    EXPECT_EQ(live, launch.live_bytes) << "launch " << i;
    peak = std::max(peak, live);
  }
  EXPECT_LE(peak, schedule.capacity);
  EXPECT_LE(schedule.peak_bytes, schedule.capacity);
}

/// With nothing merged each operator takes as long as the model says, more where computing meets sending.
void expect_lengths(OpGraph const& graph, CostModel const& model, Schedule const& schedule) {
  double busy = 0;
  for (auto const& launch : schedule.launches) {
    if (launch.ops.size() > 1 || graph.ops[static_cast<std::size_t>(launch.ops.front())].kind == OpKind::collective)
      continue;
    double const alone = model.operator_seconds(graph.ops[static_cast<std::size_t>(launch.ops.front())]);
    double const slow = launch.resource == Resource::compute ? 1 + schedule.contention : 1;
    EXPECT_GE(launch.end_s - launch.start_s, alone - 1e-9);
    EXPECT_LE(launch.end_s - launch.start_s, alone * slow + 1e-9);
    busy += alone;
  }
  EXPECT_GT(busy, -1);
}

TEST(Schedule, EveryPolicyIsLegalWithinTheCapacityAndAboveTheBound) {
  std::mt19937 random(11);
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    OpGraph const graph = random_graph(random, {.ops = 2 + random() % 40});
    CostModel const model(unit_cluster(round % 3 == 0 ? 0.5 : 0));
    std::int64_t const least = serial_peak_bytes(graph, model);
    for (int policy = 0; policy < kSchedulePolicies; ++policy) {
      SCOPED_TRACE(to_string(static_cast<SchedulePolicy>(policy)));
      auto const schedule = plan_schedule(graph, model,
                                          {.policy = static_cast<SchedulePolicy>(policy),
                                           .capacity = least + static_cast<std::int64_t>(random() % 3) * 20,
                                           .contention = round % 2 == 0 ? 0 : 0.3});
      expect_legal(graph, model, schedule);
      expect_lengths(graph, model, schedule);
      EXPECT_GE(schedule.makespan_s, schedule.bound.within_memory_s() - 1e-9);
      if (HasFailure()) return;
    }
  }
}

TEST(Schedule, WeftIsNeverWorseThanTheOthers) {
  std::mt19937 random(12);
  for (int round = 0; round < 100; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 10 + random() % 60});
    CostModel const model(unit_cluster(0.3));
    std::int64_t const capacity = serial_peak_bytes(graph, model) + 15;
    double const contention = 0.2 * static_cast<double>(round % 2);
    auto const plan = [&](SchedulePolicy policy) {
      return plan_schedule(graph, model, {.policy = policy, .capacity = capacity, .contention = contention}).makespan_s;
    };
    double const weft = plan(SchedulePolicy::weft);
    for (int policy = 1; policy < kSchedulePolicies; ++policy) {
      // The search ends within 0.01 % of the bound.
      EXPECT_LE(weft, plan(static_cast<SchedulePolicy>(policy)) * (1 + 1e-4))
          << to_string(static_cast<SchedulePolicy>(policy)) << " in round " << round;
    }
  }
}

TEST(Schedule, TheSameArgumentsGiveTheSamePlan) {
  std::mt19937 random(13);
  OpGraph const graph = random_graph(random, {.ops = 80});
  CostModel const model(unit_cluster(0.1));
  auto const first = plan_schedule(graph, model, {.contention = 0.1});
  auto const second = plan_schedule(graph, model, {.contention = 0.1});
  ASSERT_EQ(first.launches.size(), second.launches.size());
  for (std::size_t i = 0; i < first.launches.size(); ++i) {
    EXPECT_EQ(first.launches[i].ops, second.launches[i].ops);
    EXPECT_EQ(first.launches[i].start_s, second.launches[i].start_s);
  }
}

TEST(Schedule, ComputingIsSlowedOnlyWhileSomethingIsSent) {
  OpGraph graph;
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  graph.add(OpNode{.name = "compute", .flops = 10});
  graph.add(OpNode{.name = "send", .kind = OpKind::collective, .collective = {CollectiveKind::all_gather, 8, world}});
  CostModel const model(unit_cluster());
  // 4 s of sending, in which 4 / 1.25 = 3.2 s of the computing are done; 6.8 s follow.
  auto const schedule = plan_schedule(graph, model, {.contention = 0.25});
  EXPECT_DOUBLE_EQ(schedule.makespan_s, 10.8);
  EXPECT_DOUBLE_EQ(schedule.bound.best_s(), 10.8);
  EXPECT_DOUBLE_EQ(schedule.exposed_s, 0);
}

TEST(Schedule, ACapacityThatNoOrderMeetsIsRefusedWithWhatItTakes) {
  OpGraph graph{.name = "big"};
  TensorId const a = graph.add(OpTensor{.name = "a", .bytes = 100});
  graph.add(OpNode{.name = "make", .writes = {a}});
  graph.add(OpNode{.name = "use", .reads = {a}});
  CostModel const model(unit_cluster());
  try {
    static_cast<void>(plan_schedule(graph, model, {.capacity = 99}));
    FAIL() << "nothing was thrown";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("99 bytes"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("the best of all takes 100"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(static_cast<void>(plan_schedule(graph, model, {.capacity = 100})));
  EXPECT_THROW(static_cast<void>(plan_schedule(graph, model, {.capacity = -1})), Error);
  EXPECT_THROW(static_cast<void>(plan_schedule(graph, model, {.contention = -0.1})), Error);
  EXPECT_THROW(static_cast<void>(plan_schedule(graph, model, {.contention = 1e308 * 10})), Error);
}

/// Weights that are gathered one after another and used one after another: without merging, every gather costs a step.
OpGraph gathers(int layers, std::int64_t bytes, double flops) {
  OpGraph graph{.name = "gathers"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  TensorId activation = graph.add(OpTensor{.name = "x", .bytes = 1});
  for (int layer = 0; layer < layers; ++layer) {
    std::string const name = std::to_string(layer);
    TensorId const shard = graph.add(OpTensor{.name = "s" + name, .bytes = bytes / 2, .kept = true});
    TensorId const weight = graph.add(OpTensor{.name = "w" + name, .bytes = bytes});
    TensorId const next = graph.add(OpTensor{.name = "x" + name, .bytes = 1});
    graph.add(OpNode{.name = "gather" + name,
                     .kind = OpKind::collective,
                     .collective = {CollectiveKind::all_gather, bytes, world},
                     .reads = {shard},
                     .writes = {weight}});
    graph.add(OpNode{.name = "use" + name, .flops = flops, .reads = {activation, weight}, .writes = {next}});
    activation = next;
  }
  return graph;
}

TEST(Schedule, IsNearTheShortestOfAllOnSmallGraphs) {
  std::mt19937 random(15);
  double ratios = 0;
  int graphs = 0;
  int shortest_found = 0;
  for (int round = 0; round < 200; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 5 + random() % 6, .collectives = 0.4});
    CostModel const model(unit_cluster());  // without latency nothing is gained by merging
    Problem const problem(graph, model);
    std::int64_t const capacity =
        serial_peak(problem, low_memory_order(problem)) + static_cast<std::int64_t>(random() % 20);
    auto const shortest = shortest_makespan(problem, capacity);
    if (!shortest) continue;
    auto const schedule = plan_schedule(graph, model, {.capacity = capacity});
    EXPECT_GE(schedule.makespan_s, *shortest * (1 - 1e-9)) << "round " << round;
    EXPECT_LE(schedule.bound.within_memory_s(), *shortest * (1 + 1e-9)) << "round " << round;
    ratios += *shortest > 0 ? schedule.makespan_s / *shortest : 1;
    shortest_found += schedule.makespan_s <= *shortest * (1 + 1e-9) ? 1 : 0;
    ++graphs;
  }
  EXPECT_GT(graphs, 150);
  EXPECT_LT(ratios / graphs, 1.05);
  EXPECT_GT(shortest_found, graphs / 2);
  RecordProperty("mean_ratio", std::to_string(ratios / graphs));
}

TEST(ExhaustiveSearch, WaitsForMemoryWhereThatIsShorter) {
  // Two gathers of 10 bytes and 5 s each, each used for 6 s; memory for one and a half: the second has to wait until
  // the first was used, though the link is idle.
  OpGraph graph{.name = "two"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  for (int i = 0; i < 2; ++i) {
    TensorId const weight = graph.add(OpTensor{.name = "w" + std::to_string(i), .bytes = 10});
    graph.add(OpNode{.name = "gather" + std::to_string(i),
                     .kind = OpKind::collective,
                     .collective = {CollectiveKind::all_gather, 10, world},
                     .writes = {weight}});
    graph.add(OpNode{.name = "use" + std::to_string(i), .flops = 6, .reads = {weight}});
  }
  CostModel const model(unit_cluster());
  Problem const problem(graph, model);
  EXPECT_DOUBLE_EQ(shortest_makespan(problem, 15).value(), 5 + 6 + 5 + 6);
  EXPECT_DOUBLE_EQ(shortest_makespan(problem, 20).value(), 5 + 6 + 6);
  EXPECT_FALSE(shortest_makespan(problem, 9));
  EXPECT_FALSE(shortest_makespan(problem, 20, 2));
}

TEST(ReplaySchedule, TakesNoLongerThanPlannedWithoutDisturbance) {
  std::mt19937 random(14);
  for (int round = 0; round < 100; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 5 + random() % 60});
    CostModel const model(unit_cluster(0.2));
    double const contention = 0.2 * static_cast<double>(round % 2);
    std::int64_t const capacity = serial_peak_bytes(graph, model) + 10;
    for (auto const policy : {SchedulePolicy::weft, SchedulePolicy::prefetch1, SchedulePolicy::random}) {
      auto const schedule =
          plan_schedule(graph, model, {.policy = policy, .capacity = capacity, .contention = contention});
      double const replayed = replay_schedule(graph, model, schedule);
      // Contention: what starts earlier can slow down what was alone before.
      if (contention == 0) {
        EXPECT_LE(replayed, schedule.makespan_s * (1 + 1e-9));
      }
      EXPECT_GE(replayed, schedule.bound.within_memory_s() - 1e-9);
      // Twice the time for everything takes twice the time.
      EXPECT_NEAR(replay_schedule(graph, model, schedule, {.compute = 2, .communication = 2}), 2 * replayed,
                  1e-9 * replayed);
      double const noisy = replay_schedule(graph, model, schedule, {.noise = 0.2, .seed = 5});
      EXPECT_GE(noisy, 0.79 * replayed - schedule.makespan_s * 0.5);
      EXPECT_EQ(noisy, replay_schedule(graph, model, schedule, {.noise = 0.2, .seed = 5}));
    }
  }
}

TEST(ReplaySchedule, WhatIsWrongIsNamed) {
  OpGraph const graph = gathers(2, 8, 1);
  CostModel const model(unit_cluster());
  auto schedule = plan_schedule(graph, model, {.policy = SchedulePolicy::asap});
  EXPECT_THROW(static_cast<void>(replay_schedule(graph, model, schedule, {.compute = -1})), Error);
  EXPECT_THROW(static_cast<void>(replay_schedule(graph, model, schedule, {.noise = 1.5})), Error);
  auto const spoilt = [&](auto const& spoil) {
    auto copy = schedule;
    spoil(copy);
    EXPECT_THROW(static_cast<void>(replay_schedule(graph, model, copy)), Error);
  };
  spoilt([](Schedule& s) { s.launches.pop_back(); });
  spoilt([](Schedule& s) { s.launches.push_back(s.launches.front()); });
  spoilt([](Schedule& s) { std::swap(s.launches.front(), s.launches.back()); });
  spoilt([](Schedule& s) { s.launches.front().ops = {99}; });
  spoilt([](Schedule& s) { s.capacity = 3; });
}

TEST(Schedule, AnEmptyGraphTakesNoTime) {
  auto const schedule = plan_schedule({}, CostModel(unit_cluster()));
  EXPECT_EQ(schedule.makespan_s, 0);
  EXPECT_TRUE(schedule.launches.empty());
}

TEST(Schedule, MoreMemoryIsUsedToMergeAndSoForFewerSteps) {
  OpGraph const graph = gathers(64, std::int64_t{1} << 21, 1 << 20);
  Cluster cluster = unit_cluster(1 << 19);  // a step takes half as long as a gather's bytes
  CostModel const model(cluster);
  std::int64_t const least = serial_peak_bytes(graph, model);
  double before = 1e300;
  for (std::int64_t const more : {0, 2, 8, 32}) {
    auto const schedule = plan_schedule(graph, model, {.capacity = least + (more << 21)});
    EXPECT_LT(schedule.makespan_s, before) << more;
    before = schedule.makespan_s;
  }
  auto const rich = plan_schedule(graph, model, {.capacity = std::int64_t{1} << 40});
  EXPECT_LT(rich.makespan_s, 1.2 * rich.bound.best_s());
  EXPECT_GT(plan_schedule(graph, model, {.policy = SchedulePolicy::asap, .capacity = std::int64_t{1} << 40}).makespan_s,
            1.3 * rich.bound.best_s());
}

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

TEST(SerialOrder, GathersComeWhenTheyAreNeeded) {
  OpGraph const graph = gathers(8, 1 << 21, 1);
  CostModel const model(unit_cluster());
  Problem const problem(graph, model);
  // As soon as possible all eight weights are there at once; just in time one is.
  EXPECT_EQ(serial_peak(problem, as_soon_as_possible(problem)) - problem.resident_bytes(), (std::int64_t{8} << 21) + 2);
  EXPECT_EQ(serial_peak(problem, low_memory_order(problem)) - problem.resident_bytes(), (std::int64_t{1} << 21) + 2);
}

TEST(MergeCollectives, NeverMakesACycle) {
  std::mt19937 random(23);
  std::size_t merged_ones = 0;
  for (int round = 0; round < 300; ++round) {
    OpGraph graph = random_graph(random, {.ops = 5 + random() % 40, .collectives = 0.5});
    for (auto& op : graph.ops) op.collective.bytes <<= 20;  // large enough to be merged by themselves
    CostModel const model(unit_cluster());
    Problem const problem(graph, model);
    auto const serial = low_memory_order(problem);
    auto const merged = merge_collectives(problem, serial,
                                          {.gather_bytes = static_cast<std::int64_t>(random() % 60) << 20,
                                           .reduce_bytes = static_cast<std::int64_t>(random() % 60) << 20,
                                           .capacity = std::int64_t{1} << 40});
    merged_ones += merged.launches.size();
    Problem const after(graph, model, merged.launches);  // throws where there is a cycle
    EXPECT_EQ(serial_order_by(merged, after).size(), after.tasks().size());
  }
  EXPECT_GT(merged_ones, 100u);
}

TEST(Bounds, PreemptiveScheduleOfOneMachine) {
  // J. Carlier's example (1982): the best schedule takes 50; jobs 2 to 4 alone need 11 + 17 + 21.
  EXPECT_DOUBLE_EQ(
      preemptive_bound({{10, 5, 7}, {13, 6, 26}, {11, 7, 24}, {20, 4, 21}, {30, 3, 8}, {0, 6, 17}, {30, 2, 0}}), 49);
  EXPECT_DOUBLE_EQ(preemptive_bound({}), 0);
  EXPECT_DOUBLE_EQ(preemptive_bound({{0, 3, 0}, {0, 4, 0}}), 7);
  EXPECT_DOUBLE_EQ(preemptive_bound({{0, 3, 10}, {5, 4, 0}}), 13);
}

TEST(Bounds, WhatDoesNotFitCannotBeSentEarly) {
  // Two operators that compute for 10 s each; the second one's weights (30 s of sending, 60 bytes) could be sent while
  // the first computes, if there was memory for more than a third of them.
  OpGraph graph{.name = "two"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  TensorId const middle = graph.add(OpTensor{.name = "middle", .bytes = 0});
  graph.add(OpNode{.name = "first", .flops = 10, .writes = {middle}});
  OpNode second{.name = "second", .flops = 10, .reads = {middle}};
  for (int i = 0; i < 3; ++i) {
    TensorId const weight = graph.add(OpTensor{.name = "w" + std::to_string(i), .bytes = 20});
    graph.add(OpNode{.name = "gather" + std::to_string(i),
                     .kind = OpKind::collective,
                     .collective = {CollectiveKind::all_gather, 20, world},
                     .writes = {weight}});
    second.reads.push_back(weight);
  }
  graph.add(second);
  CostModel const model(unit_cluster());
  // With room for all: 30 s of sending, then 10 s of computing. The bound leaves out that the second operator waits.
  EXPECT_DOUBLE_EQ(lower_bound(Problem(graph, model), 0, 60).memory_s, 10 + 20);
  // With room for five sixths as much: 25 s early at most, which no longer bounds more; for one sixth: 5 s early.
  EXPECT_DOUBLE_EQ(lower_bound(Problem(graph, model), 0, 10).memory_s, 10 + 25);
}

TEST(Bounds, LatencyCountsOncePerSetThatCouldBeMerged) {
  OpGraph const graph = gathers(10, 20, 1);
  CostModel const model(unit_cluster(3));
  // Ten gathers of 10 s each that nothing keeps apart: one step; then the last use.
  EXPECT_DOUBLE_EQ(
      lower_bound(Problem(graph, model), 0, 1 << 30).resource_s[static_cast<std::size_t>(Resource::between_hosts)],
      3 + 100 + 1);
}

}  // namespace
}  // namespace weft
