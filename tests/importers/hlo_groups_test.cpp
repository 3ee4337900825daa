#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "importers/hlo/attributes.hpp"
#include "importers/hlo/module.hpp"
#include "importers/hlo_text.hpp"

namespace weft::test {
namespace {

using Sets = std::vector<std::vector<int>>;

std::string module_with(std::string const& groups) {
  return "HloModule m, num_partitions=8\nENTRY e {\n p = f32[8] parameter(0)\n"
         " ROOT a = f32[8] all-reduce(p), replica_groups=" +
         groups + ", to_apply=e\n}";
}

Sets sets_of(std::string const& groups) {
  auto const module = hlo::parse_module(module_with(groups), "test.hlo");
  return hlo::replica_groups(module, module.computations[0].instructions[1], 8);
}

TEST(HloGroups, FormulasAreTheExplicitSets) {
  EXPECT_EQ(sets_of("[1,8]<=[8]"), sets_of("{{0,1,2,3,4,5,6,7}}"));
  EXPECT_EQ(sets_of("[2,4]<=[8]"), sets_of("{{0,1,2,3},{4,5,6,7}}"));
  EXPECT_EQ(sets_of("[4,2]<=[2,4]T(1,0)"), sets_of("{{0,4},{1,5},{2,6},{3,7}}"));
  EXPECT_EQ(sets_of("[2,4]<=[4,2]T(1,0)"), sets_of("{{0,2,4,6},{1,3,5,7}}"));
  EXPECT_EQ(sets_of("[4,2]<=[2,2,2]T(2,0,1)"), sets_of("{{0,2},{4,6},{1,3},{5,7}}"));
  EXPECT_EQ(sets_of("{}"), (Sets{{0, 1, 2, 3, 4, 5, 6, 7}}));
}

/// By the definition: go through the permuted array's places, look up what lies there.
std::vector<int> permuted(std::array<int, 3> const& dims, std::array<std::size_t, 3> const& order) {
  std::vector<int> numbers;
  std::array<int, 3> at{};
  for (at[order[0]] = 0; at[order[0]] < dims[order[0]]; ++at[order[0]]) {
    for (at[order[1]] = 0; at[order[1]] < dims[order[1]]; ++at[order[1]]) {
      for (at[order[2]] = 0; at[order[2]] < dims[order[2]]; ++at[order[2]]) {
        numbers.push_back((at[0] * dims[1] + at[1]) * dims[2] + at[2]);
      }
    }
  }
  return numbers;
}

TEST(HloGroups, ThreeDimensionsInEveryOrder) {
  std::array<std::size_t, 3> order{0, 1, 2};
  do {
    auto const text = "[4,6]<=[2,3,4]T(" + std::to_string(order[0]) + "," + std::to_string(order[1]) + "," +
                      std::to_string(order[2]) + ")";
    std::vector<int> flat;
    for (auto const& set : sets_of(text)) flat.insert(flat.end(), set.begin(), set.end());
    EXPECT_EQ(flat, permuted({2, 3, 4}, order)) << text;
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(HloGroups, WhatFitsNowhereIsRefused) {
  for (auto const* const groups :
       {"{{0,1},{2}}", "{{0,1},{1,2}}", "{{-1,0}}", "[2,4]<=[7]", "[2,4]<=[2,4]T(0,0)", "[2,4]<=[2,4]T(0)",
        "[0,4]<=[0]", "[2,2,2]<=[8]", "[1,99999999999]<=[99999999999]", "{{0,1", "[2,4]=>[8]"}) {
    EXPECT_NE(refusal(module_with(groups)).find("test.hlo:4:"), std::string::npos)
        << groups << ": " << refusal(module_with(groups));
  }
}

TEST(HloGroups, RanksThatTheModuleDoesNotHaveAreToldAndCounted) {
  auto const module = [](std::string const& attributes) {
    return "HloModule m" + attributes +
           "\nENTRY e {\n  p = f32[8] parameter(0)\n"
           "  a = f32[8] all-reduce(p), replica_groups={{0,1},{2,9}}, to_apply=e\n"
           "  b = f32[8] all-reduce(a), replica_groups={{0,1},{2,3}}, to_apply=e\n"
           "  ROOT c = f32[8] all-reduce(b), replica_groups={{0,1},{2,9}}, to_apply=e\n}";
  };
  auto const report = import_text(module(", num_partitions=4")).report;
  ASSERT_EQ(report.warnings.size(), 1U);
  EXPECT_EQ(report.warnings[0].count, 2);
  EXPECT_NE(to_string(report).find("  groups of ranks beyond the 4 that the module has (2 instructions)\n"),
            std::string::npos)
      << to_string(report);
  EXPECT_TRUE(import_text(module("")).report.warnings.empty());
  EXPECT_TRUE(import_text(module(", replica_count=5, num_partitions=2")).report.warnings.empty());
}

TEST(HloGroups, PermutesAreGroupedByWhoSendsToWhom) {
  auto const imported = import_text(R"(HloModule m
ENTRY e {
  p = f32[8] parameter(0)
  a = f32[8] collective-permute(p), source_target_pairs={{0,2},{2,0},{1,3},{3,1}}
  ROOT b = f32[8] collective-permute(a), source_target_pairs={{0,1},{1,2},{3,4}}
})");
  ASSERT_EQ(imported.graph.groups.size(), 2U);
  EXPECT_EQ(imported.graph.groups[0].sets, (Sets{{0, 2}, {1, 3}}));
  EXPECT_EQ(imported.graph.groups[1].sets, (Sets{{0, 1, 2, 3, 4}}));
  EXPECT_EQ(imported.graph.ops[0].collective.kind, CollectiveKind::permute);
  EXPECT_EQ(imported.graph.ops[0].collective.bytes, 32);
}

}  // namespace
}  // namespace weft::test
