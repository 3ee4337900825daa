#include "weft/cost_model.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>

#include "scheduler/graph/strided_group.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

Cluster two_by_four() {
  return {.name = "c",
          .ranks_per_host = 4,
          .flops_per_s = 100,
          .memory_bytes_per_s = 10,
          .within = {40, 0.5},
          .between = {8, 2}};
}

GroupPlacement placed(CostModel const& model, StridedSets const& sets) {
  return model.placement(strided_group("g", sets));
}

TEST(CostModel, PlacesGroupsOnHosts) {
  CostModel const model(two_by_four());
  auto const world = placed(model, {.ranks = 8, .size = 8});
  EXPECT_EQ(world.hosts, 2);
  EXPECT_EQ(world.ranks_per_host, 4);
  EXPECT_EQ(world.sets_per_host, 1);
  auto const inside = placed(model, {.ranks = 8, .size = 4});
  EXPECT_EQ(inside.hosts, 1);
  EXPECT_EQ(inside.ranks_per_host, 4);
  // {0, 4}, {1, 5}, {2, 6}, {3, 7}: all four leave each host.
  auto const across = placed(model, {.ranks = 8, .size = 2, .stride = 4});
  EXPECT_EQ(across.hosts, 2);
  EXPECT_EQ(across.ranks_per_host, 1);
  EXPECT_EQ(across.sets_per_host, 4);
}

TEST(CostModel, RingsTakeAStepPerRankAndTheirSlowestHop) {
  CostModel const model(two_by_four());
  auto const inside = placed(model, {.ranks = 8, .size = 4});
  auto const gather = model.collective(CollectiveKind::all_gather, 160, inside, CollectiveAlgorithm::ring);
  EXPECT_DOUBLE_EQ(gather.latency_s, 3 * 0.5);
  EXPECT_DOUBLE_EQ(gather.transfer_s, 160 * 3.0 / 4 / 40);
  auto const reduce = model.collective(CollectiveKind::all_reduce, 160, inside, CollectiveAlgorithm::ring);
  EXPECT_DOUBLE_EQ(reduce.seconds(), 2 * gather.seconds());
  auto const world = placed(model, {.ranks = 8, .size = 8});
  auto const wide = model.collective(CollectiveKind::reduce_scatter, 160, world, CollectiveAlgorithm::ring);
  EXPECT_DOUBLE_EQ(wide.latency_s, 7 * 2);
  EXPECT_DOUBLE_EQ(wide.transfer_s, 160 * 7.0 / 8 / 8);
}

TEST(CostModel, SetsThatLeaveAHostShareItsLink) {
  CostModel const model(two_by_four());
  auto const across = placed(model, {.ranks = 8, .size = 2, .stride = 4});
  auto const cost = model.collective(CollectiveKind::all_gather, 80, across, CollectiveAlgorithm::ring);
  EXPECT_DOUBLE_EQ(cost.transfer_s, 80 * 0.5 / (8.0 / 4));
}

TEST(CostModel, TwoLevelsTakeFewerStepsThanARing) {
  CostModel const model(two_by_four());
  auto const world = placed(model, {.ranks = 8, .size = 8});
  auto const cost = model.collective(CollectiveKind::all_gather, 160, world, CollectiveAlgorithm::two_level);
  EXPECT_DOUBLE_EQ(cost.latency_s, 1 * 2 + 3 * 0.5);
  EXPECT_DOUBLE_EQ(cost.transfer_s, std::max(160 * 0.5 / 8, 160 * 0.75 / 40));
  EXPECT_EQ(model.collective(CollectiveKind::all_gather, 160, world).algorithm, CollectiveAlgorithm::two_level);
}

TEST(CostModel, TheFastestAlgorithmIsTaken) {
  Cluster cluster = two_by_four();
  cluster.ranks_per_host = 1;
  CostModel const model(cluster);
  auto const world = placed(model, {.ranks = 64, .size = 64});
  EXPECT_EQ(model.collective(CollectiveKind::all_reduce, 8, world).algorithm, CollectiveAlgorithm::tree);
  EXPECT_EQ(model.collective(CollectiveKind::all_reduce, 1 << 20, world).algorithm, CollectiveAlgorithm::ring);
  for (std::int64_t const bytes : {0, 1, 100, 1 << 20}) {
    auto const best = model.collective(CollectiveKind::all_reduce, bytes, world);
    for (auto const algorithm : {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree}) {
      EXPECT_LE(best.seconds(), model.collective(CollectiveKind::all_reduce, bytes, world, algorithm).seconds());
    }
  }
}

TEST(CostModel, AnAlgorithmThatAKindLacksIsRefused) {
  CostModel const model(two_by_four());
  auto const world = placed(model, {.ranks = 8, .size = 8});
  EXPECT_THROW(static_cast<void>(model.collective(CollectiveKind::all_gather, 1, world, CollectiveAlgorithm::tree)),
               Error);
}

TEST(CostModel, AllToAllSharesTheHostsLink) {
  CostModel const model(two_by_four());
  auto const world = placed(model, {.ranks = 8, .size = 8});
  // 4 ranks of a host each send 4 of 8 parts out of it.
  EXPECT_DOUBLE_EQ(model.collective(CollectiveKind::all_to_all, 80, world).transfer_s, 4 * 80 * 4.0 / 8 / 8);
}

TEST(CostModel, AGroupOfOneSendsNothing) {
  CostModel const model(two_by_four());
  auto const alone = placed(model, {.ranks = 8, .size = 1});
  EXPECT_EQ(model.collective(CollectiveKind::all_reduce, 1 << 30, alone).seconds(), 0);
}

TEST(CostModel, ComputingIsARoofline) {
  Cluster cluster = two_by_four();
  cluster.operator_s = 0.25;
  CostModel const model(cluster);
  EXPECT_DOUBLE_EQ(model.operator_seconds({.flops = 1000, .memory_bytes = 10}), 10.25);
  EXPECT_DOUBLE_EQ(model.operator_seconds({.flops = 10, .memory_bytes = 1000}), 100.25);
  EXPECT_DOUBLE_EQ(model.operator_seconds({.flops = 10, .seconds = 7}), 7);
  EXPECT_DOUBLE_EQ(model.operator_seconds({.kind = OpKind::copy, .memory_bytes = 50}), 5);
  cluster.copy_bytes_per_s = 2;
  EXPECT_DOUBLE_EQ(CostModel(cluster).operator_seconds({.kind = OpKind::copy, .memory_bytes = 50}), 25);
}

std::string message_of(std::function<void()> const& call) {
  try {
    call();
  } catch (Error const& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Cluster, PresetsAreWhole) {
  for (auto const& name : cluster_names()) {
    Cluster const cluster = cluster_named(name);
    EXPECT_EQ(cluster.name, name);
    EXPECT_NO_THROW(check_cluster(cluster)) << name;
    std::stringstream text;
    write_cluster(cluster, text);
    Cluster const back = read_cluster(text, "preset");
    EXPECT_EQ(back.name, name);
    EXPECT_EQ(back.between.bytes_per_s, cluster.between.bytes_per_s);
    EXPECT_EQ(back.within.step_s, cluster.within.step_s);
    EXPECT_EQ(back.memory_bytes, cluster.memory_bytes);
    EXPECT_EQ(back.copy_bytes_per_s, cluster.copy_bytes_per_s);
  }
  EXPECT_NE(message_of([] { static_cast<void>(cluster_named("tpu")); }).find("h100-400g"), std::string::npos);
}

TEST(Cluster, WhatIsWrongIsNamed) {
  struct Case {
    char const* json;
    char const* named;
  };
  for (
      auto const& [json, named] :
      {Case{"{", "not a cluster"}, Case{"[1]", "not a JSON object"}, Case{R"({"flops": 1})", "\"flops\""},
       Case{R"({"within": {"bytes": 1}})", "within.bytes"}, Case{R"({"within": 3})", "\"within\" is not an object"},
       Case{R"({"flops_per_s": "1"})", "flops_per_s"},
       Case{R"({"ranks_per_host": 1.5, "flops_per_s": 1})", "ranks_per_host"},
       Case{R"({"flops_per_s": 1})", "memory_bytes_per_s"},
       Case{"{}", "it does not say flops_per_s, memory_bytes_per_s, within.bytes_per_s, between.bytes_per_s"},
       Case{R"({"flops_per_s": 1, "memory_bytes_per_s": 1, "within": {"step_s": 0}, "between": {"bytes_per_s": 1}})",
            "it does not say within.bytes_per_s"},
       Case{
           R"({"flops_per_s": -1, "memory_bytes_per_s": 1, "within": {"bytes_per_s": 1}, "between": {"bytes_per_s": 1}})",
           "flops_per_s of -1"}}) {
    std::istringstream in{json};
    auto const message = message_of([&] { static_cast<void>(read_cluster(in, "c.json")); });
    EXPECT_NE(message.find(named), std::string::npos) << json << ": " << message;
    EXPECT_NE(message.find("c.json"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace weft
