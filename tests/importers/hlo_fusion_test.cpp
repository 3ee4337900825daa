#include <gtest/gtest.h>

#include "importers/hlo_text.hpp"

namespace weft::test {
namespace {

constexpr char const* kNorm = R"(HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  x = bf16[64,256] parameter(0)
  w = bf16[256] parameter(1)
  wide = f32[64,256] convert(x)
  square = f32[64,256] multiply(wide, wide)
  zero = f32[] constant(0)
  total = f32[64] reduce(square, zero), dimensions={1}, to_apply=sum
  scale = f32[64] rsqrt(total)
  scales = f32[64,256] broadcast(scale), dimensions={0}
  scaled = f32[64,256] multiply(wide, scales)
  ws = bf16[64,256] broadcast(w), dimensions={1}
  narrow = bf16[64,256] convert(scaled)
  ROOT y = bf16[64,256] multiply(narrow, ws)
})";

TEST(HloFusion, ChainsReadAndWriteOnceWhatTheyShareWithOthers) {
  auto const imported = import_text(kNorm);
  ASSERT_EQ(imported.graph.ops.size(), 3U);
  double const x = 64 * 256 * 2;
  EXPECT_EQ(imported.graph.ops[0].memory_bytes, x + 64 * 4) << "the sum of squares reads x as it is stored";
  EXPECT_EQ(imported.graph.ops[1].memory_bytes, 2 * 64 * 4);
  EXPECT_EQ(imported.graph.ops[2].memory_bytes, x + 64 * 4 + 256 * 2 + x) << "the conversion is done again";
  EXPECT_EQ(imported.report.fusions, 2);
  EXPECT_EQ(imported.report.fused_instructions, 5);
}

TEST(HloFusion, WithoutItEachInstructionIsAlone) {
  auto const imported = import_text(kNorm, {.fuse = false});
  EXPECT_EQ(imported.graph.ops.size(), 9U);
  double const f32 = 64 * 256 * 4;
  double const bf16 = f32 / 2;
  EXPECT_EQ(imported.graph.ops[0].memory_bytes, bf16 + f32) << "convert";
  EXPECT_EQ(imported.graph.ops[1].memory_bytes, 2 * f32) << "multiply reads its operand once";
}

/// a → matrix product → c, and a → b → c: a and c in one operator would wait for the product that waits for them.
TEST(HloFusion, NeverMakesACircle) {
  auto const imported = import_text(R"(HloModule m
ENTRY e {
  x = f32[16,16] parameter(0)
  a = f32[16,16] negate(x)
  d = f32[16,16] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[16,16] exponential(a)
  ROOT c = f32[16,16] add(b, d)
})");
  ASSERT_EQ(imported.graph.ops.size(), 3U) << "b, whose only reader is c, joins it; a has another reader";
  EXPECT_EQ(imported.graph.ops[0].memory_bytes, 2 * 16 * 16 * 4) << "b is not written";
  EXPECT_EQ(imported.graph.ops[2].memory_bytes, 3 * 16 * 16 * 4);
}

TEST(HloFusion, BroadcastConstantsAndIotaAreFreeWithinAnOperator) {
  auto const imported = import_text(R"(HloModule m
ENTRY e {
  x = s32[100000] parameter(0)
  n = s32[100000] iota(), iota_dimension=0
  one = s32[] constant(1)
  ones = s32[100000] broadcast(one), dimensions={}
  m = s32[100000] add(n, ones)
  ROOT r = s32[100000] multiply(m, x)
})");
  ASSERT_EQ(imported.graph.ops.size(), 1U);
  EXPECT_EQ(imported.graph.ops[0].memory_bytes, 2 * 400000);
}

TEST(HloFusion, WhatNothingNeedsIsLeftOutUnlessItCommunicates) {
  auto const imported = import_text(R"(HloModule m, num_partitions=2
ENTRY e {
  x = f32[16] parameter(0)
  unused = f32[16] negate(x)
  sent = f32[16] all-reduce(x), replica_groups={}, to_apply=e
  ROOT r = f32[16] exponential(x)
})");
  ASSERT_EQ(imported.graph.ops.size(), 2U);
  EXPECT_EQ(imported.graph.ops[0].kind, OpKind::collective);
}

TEST(HloFusion, PartsOfOneArrayAddUpToNoMoreThanIt) {
  auto const imported = import_text(R"(HloModule m
ENTRY e {
  x = f32[8,128] parameter(0)
  a = f32[8,127] slice(x), slice={[0:8], [1:128]}
  b = f32[8,1] slice(x), slice={[0:8], [0:1]}
  c = f32[8,128] concatenate(a, b), dimensions={1}
  ROOT d = f32[8,128] add(c, x)
})");
  ASSERT_EQ(imported.graph.ops.size(), 1U);
  EXPECT_EQ(imported.graph.ops[0].memory_bytes, 2 * 8 * 128 * 4);
}

/// A sum may go over the array that only it reads; what is read in another order than it is written may not.
TEST(HloFusion, ResultsAreWrittenOverWhatNobodyElseReads) {
  auto const imported = import_text(R"(HloModule m
ENTRY e {
  x = f32[16,16] parameter(0)
  y = f32[16,16] sort(x), dimensions={0}
  z = f32[16,16] sort(y), dimensions={1}
  a = f32[16,16] add(y, z)
  b = f32[16,16] sort(a), dimensions={0}
  c = f32[16,16] transpose(b), dimensions={1,0}
  d = f32[16,16] negate(c)
  ROOT r = f32[16,16] sort(d), dimensions={0}
})");
  auto const& tensors = imported.graph.tensors;
  ASSERT_EQ(tensors.size(), 7U);
  EXPECT_EQ(tensors[3].in_place_of, 2) << "a over z; y has another reader";
  EXPECT_EQ(tensors[5].in_place_of, kNone) << "d reads b in another order";
}

}  // namespace
}  // namespace weft::test
