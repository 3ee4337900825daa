#include <gtest/gtest.h>

#include <string>

#include "importers/hlo_text.hpp"

namespace weft::test {
namespace {

struct Texts {
  std::string table = "0, 8, 16, 24";
  std::string between = "same = f32[32,4] copy(r)";
  std::string part = "8,4";
  std::string root = "ROOT t = (f32[8,4]) tuple(s)";
  std::string groups = "[1,4]<=[4]";
};

std::string module_of(Texts const& texts) {
  return "HloModule m, num_partitions=4\nsum {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
         " ROOT c = f32[] add(a, b)\n}\nENTRY e {\n g = f32[32,4] parameter(0)\n"
         " r = f32[32,4] all-reduce(g), replica_groups=" +
         texts.groups + ", to_apply=sum\n " + texts.between + "\n table = s32[4] constant({" + texts.table +
         "})\n rank = u32[] partition-id()\n one = s32[1] dynamic-slice(table, rank), dynamic_slice_sizes={1}\n"
         " place = s32[] reshape(one)\n zero = s32[] constant(0)\n s = f32[" +
         texts.part + "] dynamic-slice(same, place, zero), dynamic_slice_sizes={" + texts.part + "}\n " + texts.root +
         "\n}";
}

/// The only one of all collectives.
CollectiveKind kind_of(ImportedHlo const& imported) {
  EXPECT_EQ(imported.report.collectives.size(), 1U);
  return imported.graph.ops.front().collective.kind;
}

TEST(HloRewriting, AnAllReduceAndEachRanksSliceAreAReduceScatter) {
  auto const imported = import_text(module_of({}));
  ASSERT_EQ(imported.graph.ops.size(), 1U);
  auto const& op = imported.graph.ops.front();
  EXPECT_EQ(op.collective.kind, CollectiveKind::reduce_scatter);
  EXPECT_EQ(op.collective.bytes, 32 * 4 * 4) << "what it is given";
  EXPECT_EQ(imported.graph.tensors[static_cast<std::size_t>(op.writes.front())].bytes, 8 * 4 * 4);
  EXPECT_EQ(imported.report.reduce_scatters, 1);
  EXPECT_EQ(imported.report.reduce_scatter_bytes, 32 * 4 * 4);
  EXPECT_EQ(imported.report.all_reduce_bytes, 0);
}

TEST(HloRewriting, ConversionsMayLieBetween) {
  Texts texts;
  texts.between = "half = bf16[32,4] convert(r)\n same = f32[32,4] convert(half)";
  EXPECT_EQ(kind_of(import_text(module_of(texts))), CollectiveKind::reduce_scatter);
}

TEST(HloRewriting, EachSetOfRanksHasAllParts) {
  Texts texts;
  texts.groups = "[2,2]<=[4]";
  texts.table = "0, 16, 0, 16";
  texts.part = "16,4";
  texts.root = "ROOT t = (f32[16,4]) tuple(s)";
  EXPECT_EQ(kind_of(import_text(module_of(texts))), CollectiveKind::reduce_scatter);
}

TEST(HloRewriting, AnythingElseStaysAnAllReduce) {
  Texts twice;  // two ranks take the same part
  twice.table = "0, 8, 8, 24";
  EXPECT_EQ(kind_of(import_text(module_of(twice))), CollectiveKind::all_reduce);
  Texts askew;  // parts that overlap
  askew.table = "0, 9, 16, 24";
  EXPECT_EQ(kind_of(import_text(module_of(askew))), CollectiveKind::all_reduce);
  Texts pairs;  // a quarter each of what two ranks reduced
  pairs.groups = "[2,2]<=[4]";
  EXPECT_EQ(kind_of(import_text(module_of(pairs))), CollectiveKind::all_reduce);
  Texts all;  // somebody wants all of it
  all.root = "ROOT t = (f32[8,4], f32[32,4]) tuple(s, r)";
  EXPECT_EQ(kind_of(import_text(module_of(all))), CollectiveKind::all_reduce);
  EXPECT_EQ(kind_of(import_text(module_of({}), {.rewrite_reduce_scatters = false})), CollectiveKind::all_reduce);
}

TEST(HloRewriting, ARaggedAllToAllSendsItsFirstOperand) {
  auto const imported = import_text(R"(HloModule m, num_partitions=2
ENTRY e {
  input = bf16[128] parameter(0)
  output = bf16[256] parameter(1)
  input_offsets = s64[2] parameter(2)
  send_sizes = s64[2] parameter(3)
  output_offsets = s64[2] parameter(4)
  recv_sizes = s64[2] parameter(5)
  ROOT r = bf16[256] ragged-all-to-all(input, output, input_offsets, send_sizes, output_offsets,
    /*index=5*/recv_sizes), replica_groups={{0,1}}
})");
  ASSERT_EQ(imported.graph.ops.size(), 1U);
  auto const& op = imported.graph.ops[0];
  EXPECT_EQ(op.collective.kind, CollectiveKind::all_to_all);
  EXPECT_EQ(op.collective.bytes, 2 * 128);
  EXPECT_EQ(op.reads.size(), 6U) << "it waits for places and sizes, too";
  EXPECT_EQ(imported.graph.tensors[static_cast<std::size_t>(op.writes.at(0))].bytes, 2 * 256);
}

TEST(HloRewriting, AsynchronousPairsAreOneCollective) {
  auto const imported = import_text(R"(HloModule m, num_partitions=4
ENTRY e {
  p = f32[8] parameter(0)
  s = (f32[8], f32[32]) all-gather-start(p), replica_groups=[1,4]<=[4], dimensions={0}
  d = f32[32] all-gather-done(s)
  r = f32[32] all-reduce-start(d), replica_groups=[1,4]<=[4], to_apply=e
  ROOT t = f32[32] all-reduce-done(r)
})");
  ASSERT_EQ(imported.graph.ops.size(), 2U);
  EXPECT_EQ(imported.graph.ops[0].collective.kind, CollectiveKind::all_gather);
  EXPECT_EQ(imported.graph.ops[0].collective.bytes, 128);
  EXPECT_EQ(imported.graph.ops[1].reads, imported.graph.ops[0].writes);
}

}  // namespace
}  // namespace weft::test
