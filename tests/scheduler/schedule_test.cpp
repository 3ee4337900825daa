#include "weft/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gathers.hpp"
#include "harness/sanitizers.hpp"
#include "random_graph.hpp"
#include "scheduler/order/problem.hpp"
#include "weft/error.hpp"
#include "weft/memory_planner.hpp"

namespace weft {
namespace {

using test::gathers;
using test::random_graph;
using test::unit_cluster;
using test::unless_sanitized;

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
  for (int round = 0; round < unless_sanitized(150, 60); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    OpGraph const graph = random_graph(random, {.ops = 2 + random() % 40});
    CostModel const model(unit_cluster(round % 3 == 0 ? 0.5 : 0));
    std::int64_t const least = serial_peak_bytes(graph, model);
    for (int policy = 0; policy <= kSchedulePolicies; ++policy) {
      SCOPED_TRACE(to_string(static_cast<SchedulePolicy>(policy)));
      auto const schedule = plan_schedule(graph, model,
                                          {.policy = static_cast<SchedulePolicy>(policy),
                                           .capacity = least + static_cast<std::int64_t>(random() % 3) * 20,
                                           .contention = round % 2 == 0 ? 0 : 0.3,
                                           .settings = {.gather_bytes = static_cast<std::int64_t>(random() % 50),
                                                        .reduction_bytes = static_cast<std::int64_t>(random() % 50),
                                                        .prefetch_depth = static_cast<int>(random() % 4)}});
      expect_legal(graph, model, schedule);
      expect_lengths(graph, model, schedule);
      EXPECT_GE(schedule.makespan_s, schedule.bound.within_memory_s() - 1e-9);
      if (HasFailure()) return;
    }
  }
}

/// Graphs of any shape with little and with much memory, with and without contention; the same for the same `random`.
void expect_no_policy_is_shorter(std::mt19937& random, int rounds, std::chrono::milliseconds time_limit) {
  for (int round = 0; round < rounds; ++round) {
    OpGraph const graph =
        random_graph(random, {.ops = 2 + random() % 40, .collectives = 0.1 * static_cast<double>(random() % 8)});
    CostModel const model(unit_cluster(std::array{0.0, 0.001, 0.3}[random() % 3]));
    ScheduleOptions options{
        .capacity = serial_peak_bytes(graph, model) + std::array<std::int64_t, 3>{0, 15, 1'000'000}[random() % 3],
        .contention = std::array{0.0, 0.1, 0.5}[random() % 3],
        .time_limit = time_limit,
        .seed = random()};
    options.settings = {.gather_bytes = static_cast<std::int64_t>(random() % 50),
                        .reduction_bytes = static_cast<std::int64_t>(random() % 50),
                        .prefetch_depth = static_cast<int>(random() % 4)};
    double const weft = plan_schedule(graph, model, options).makespan_s;
    for (int policy = 1; policy <= kSchedulePolicies; ++policy) {
      options.policy = static_cast<SchedulePolicy>(policy);
      EXPECT_LE(weft, plan_schedule(graph, model, options).makespan_s)
          << to_string(options.policy) << " in round " << round;
    }
  }
}

TEST(Schedule, WeftIsNeverLongerThanTheOthers) {
  std::mt19937 random(12);
  expect_no_policy_is_shorter(random, unless_sanitized(300, 40), std::chrono::seconds(60));
}

TEST(Schedule, WeftIsNeverLongerThanTheOthersWithoutTimeToSearch) {
  std::mt19937 random(14);
  expect_no_policy_is_shorter(random, unless_sanitized(400, 80), std::chrono::milliseconds(0));
}

TEST(Schedule, SettingsMergeUpToTheirBytes) {
  OpGraph graph{.name = "sums"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  for (int i = 0; i < 8; ++i) {
    auto const name = std::to_string(i);
    TensorId const made = graph.add(OpTensor{.name = "made" + name, .bytes = 4});
    graph.add(OpNode{.name = "compute" + name, .flops = 1, .writes = {made}});
    graph.add(OpNode{.name = "sum" + name,
                     .kind = OpKind::collective,
                     .collective = {CollectiveKind::all_reduce, 4, world},
                     .reads = {made}});
  }
  CostModel const model(unit_cluster(0.5));
  for (std::int64_t const bytes : {0, 4, 8, 16, 32}) {
    auto const schedule = plan_schedule(
        graph, model, {.policy = SchedulePolicy::settings, .capacity = 1000, .settings = {.reduction_bytes = bytes}});
    std::size_t most = 0;
    for (Launch const& launch : schedule.launches) most = std::max(most, launch.ops.size());
    EXPECT_EQ(most, std::max<std::size_t>(1, static_cast<std::size_t>(bytes) / 4)) << bytes;
  }
  EXPECT_THROW(static_cast<void>(plan_schedule(graph, model, {.settings = {.prefetch_depth = -1}})), Error);
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

TEST(Schedule, FitsAndRefusesByTheOrderOfLeastMemory) {
  std::mt19937 random(16);
  int less = 0;
  for (int round = 0; round < 40; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 30 + random() % 60});
    CostModel const model(unit_cluster(0.1));
    TensorPlan const least = plan_tensors(graph, {.alignment = 1, .time_limit = std::chrono::milliseconds(0)});
    less += least.live_bytes < serial_peak_bytes(graph, model) ? 1 : 0;
    ScheduleOptions options{.capacity = least.live_bytes, .time_limit = std::chrono::milliseconds(0)};
    expect_legal(graph, model, plan_schedule(graph, model, options));
    options.capacity = least.live_bytes - 1;
    try {
      static_cast<void>(plan_schedule(graph, model, options));
      FAIL() << "nothing was thrown";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      std::string const proven = least.bound_bytes == least.live_bytes
                                     ? "the best of all takes " + std::to_string(least.live_bytes) + ","
                                     : "none can take less than " + std::to_string(least.bound_bytes);
      EXPECT_NE(std::string(error.what()).find(proven), std::string::npos) << proven << ": " << error.what();
    }
  }
  EXPECT_GT(less, 3);
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
  for (std::int64_t const more : {0, 2, 8}) {
    auto const schedule = plan_schedule(graph, model, {.capacity = least + (more << 21)});
    EXPECT_LT(schedule.makespan_s, before) << more;
    before = schedule.makespan_s;
  }
  auto const rich = plan_schedule(graph, model, {.capacity = std::int64_t{1} << 40});
  EXPECT_LE(rich.makespan_s, before);
  EXPECT_LT(rich.makespan_s, 1.2 * rich.bound.best_s());
  EXPECT_GT(plan_schedule(graph, model, {.policy = SchedulePolicy::asap, .capacity = std::int64_t{1} << 40}).makespan_s,
            1.3 * rich.bound.best_s());
}

TEST(Schedule, TimesAndBytesThatCannotBeAddedUpAreRefused) {
  OpGraph graph{.name = "huge"};
  graph.add(OpNode{.name = "a", .seconds = 1});
  graph.add(OpNode{.name = "b", .seconds = 1e308});
  graph.add(OpNode{.name = "c", .seconds = 1e308});
  CostModel const model(unit_cluster());
  try {
    static_cast<void>(plan_schedule(graph, model, {}));
    ADD_FAILURE() << "planned";
  } catch (Error const& error) {
    EXPECT_NE(std::string(error.what()).find("operator b takes 1e+308 s"), std::string::npos) << error.what();
  }
  OpGraph wide{.name = "wide"};
  for (int i = 0; i < 2; ++i) {
    wide.add(OpTensor{.name = "t" + std::to_string(i), .bytes = (std::int64_t{1} << 60) - 1});
  }
  try {
    check_graph(wide);
    ADD_FAILURE() << "accepted";
  } catch (Error const& error) {
    EXPECT_NE(std::string(error.what()).find("tensor 1 (t1)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft
