#include <gtest/gtest.h>

#include <string>

#include "importers/hlo_text.hpp"

namespace weft::test {
namespace {

/// The only operator of an entry of these instructions.
OpNode only_op(std::string const& instructions) {
  auto const imported = import_text("HloModule m\nENTRY e {\n" + instructions + "\n}");
  EXPECT_EQ(imported.graph.ops.size(), 1U);
  return imported.graph.ops.empty() ? OpNode{} : imported.graph.ops.front();
}

TEST(HloCosts, DotsMultiplyByWhatTheyContract) {
  auto const op = only_op(R"(a = bf16[4,16,32] parameter(0)
    b = bf16[4,32,64] parameter(1)
    ROOT d = f32[4,16,64] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2})");
  EXPECT_EQ(op.flops, 2.0 * 4 * 16 * 64 * 32);
  EXPECT_EQ(op.memory_bytes, 2.0 * 4 * 16 * 32 + 2.0 * 4 * 32 * 64 + 4.0 * 4 * 16 * 64);
}

TEST(HloCosts, ConvolutionsMultiplyByAKernelOfOneFeature) {
  auto const op = only_op(R"(a = f32[8,10,10,3] parameter(0)
    k = f32[3,3,3,16] parameter(1)
    ROOT c = f32[8,8,8,16] convolution(a, k), window={size=3x3}, dim_labels=b01f_01io->b01f)");
  EXPECT_EQ(op.flops, 2.0 * (8 * 8 * 8 * 16) * (3 * 3 * 3));
}

OpNode attention(std::string const& direction, int mask) {
  return only_op(R"(q = bf16[2,64,8,16] parameter(0)
    k = bf16[2,64,4,16] parameter(1)
    v = bf16[2,64,4,16] parameter(2)
    ROOT r = (bf16[2,64,8,16], u8[1000]) custom-call(q, k, v), custom_call_target="te_fused_attn_)" +
                 direction + R"(_ffi", backend_config={mask_type = )" + std::to_string(mask) +
                 " : i64, v_head_dim = 16 : i64}");
}

TEST(HloCosts, AttentionIsTwoProductsForwardAndFiveBackwardAndHalfUnderACausalMask) {
  double const product = 2.0 * 2 * 8 * 64 * 64 * 16;
  EXPECT_EQ(attention("forward", 0).flops, 2 * product);
  EXPECT_EQ(attention("forward", 3).flops, product);
  EXPECT_EQ(attention("backward", 2).flops, 2.5 * product);
  EXPECT_EQ(attention("forward", 0).memory_bytes, 2.0 * (2 * 64 * 8 * 16 * 2 + 2 * 64 * 4 * 16 * 2))
      << "room to work in is not read and written as a whole";
}

TEST(HloCosts, SlicesCostWhatTheyTake) {
  auto const op = only_op(R"(a = f32[100,64] parameter(0)
    i = s32[] parameter(1)
    z = s32[] constant(0)
    ROOT d = f32[1,64] dynamic-slice(a, i, z), dynamic_slice_sizes={1,64})");
  EXPECT_EQ(op.memory_bytes, 2 * 256 + 4);
  EXPECT_EQ(op.reads.size(), 2U) << "it waits for the index";
}

TEST(HloCosts, UpdatesInPlaceCostWhatTheyWrite) {
  auto const imported = import_text(R"(HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
  a = f32[100,64] parameter(0)
  u = f32[1,64] parameter(1)
  z = s32[] constant(0)
  ROOT d = f32[100,64] dynamic-update-slice(a, u, z, z)
})");
  ASSERT_EQ(imported.graph.ops.size(), 1U);
  EXPECT_EQ(imported.graph.ops[0].memory_bytes, 2 * 256);
  EXPECT_EQ(imported.graph.tensors[2].alias_of, 0);
}

TEST(HloCosts, AScatterIntoSeveralArraysWritesEachInPlace) {
  auto const imported =
      import_text(R"(HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }
put {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  r = f32[] parameter(2)
  s = f32[] parameter(3)
  ROOT t = (f32[], f32[]) tuple(r, s)
}
ENTRY e {
  a = f32[100,64] parameter(0)
  b = f32[100,64] parameter(1)
  i = s32[8,1] parameter(2)
  u = f32[8,64] parameter(3)
  v = f32[8,64] parameter(4)
  ROOT s = (f32[100,64], f32[100,64]) scatter(a, b, i, u, v), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=put
})");
  ASSERT_EQ(imported.graph.ops.size(), 1U);
  EXPECT_EQ(imported.graph.ops[0].memory_bytes, 8 * 4 + 2 * 3 * 2048);
  EXPECT_TRUE(imported.report.warnings.empty()) << to_string(imported.report);
  ASSERT_EQ(imported.graph.tensors.size(), 7U);
  EXPECT_EQ(imported.graph.tensors[5].alias_of, 0);
  EXPECT_EQ(imported.graph.tensors[6].alias_of, 1);
}

TEST(HloCosts, UpdatesOfWhatIsReadLaterCopyIt) {
  auto const imported = import_text(R"(HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
  a = f32[100,64] parameter(0)
  u = f32[1,64] parameter(1)
  z = s32[] constant(0)
  d = f32[100,64] dynamic-update-slice(a, u, z, z)
  n = f32[100,64] sort(a), dimensions={0}
  ROOT s = f32[100,64] sort(d, n), dimensions={0}
})");
  EXPECT_EQ(imported.graph.tensors[2].alias_of, kNone);
  EXPECT_EQ(imported.graph.ops[0].memory_bytes, 2 * 256 + 2 * 25600);
}

/// A parameter that is not given away, and what is a result as well.
TEST(HloCosts, UpdatesOfWhatIsKeptCopyIt) {
  auto const imported = import_text(R"(HloModule m
ENTRY e {
  a = f32[100,64] parameter(0)
  u = f32[1,64] parameter(1)
  z = s32[] constant(0)
  d = f32[100,64] dynamic-update-slice(a, u, z, z)
  s = f32[100,64] sort(d), dimensions={0}
  t = f32[100,64] dynamic-update-slice(s, u, z, z)
  ROOT r = (f32[100,64], f32[100,64]) tuple(s, t)
})");
  ASSERT_EQ(imported.graph.ops.size(), 3U);
  for (std::size_t const updated : {0, 2}) {
    auto const& op = imported.graph.ops[updated];
    EXPECT_EQ(imported.graph.tensors[static_cast<std::size_t>(op.writes.at(0))].alias_of, kNone) << op.name;
    EXPECT_EQ(op.memory_bytes, 2 * 256 + 2 * 25600) << op.name;
  }
}

TEST(HloCosts, WhatIsReadBeforeOrdersTheUpdate) {
  auto const imported = import_text(R"(HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
  a = f32[100,64] parameter(0)
  u = f32[1,64] parameter(1)
  z = s32[] constant(0)
  n = f32[100,64] sort(a), dimensions={0}
  d = f32[100,64] dynamic-update-slice(a, u, z, z)
  ROOT s = f32[100,64] sort(d, n), dimensions={0}
})");
  EXPECT_EQ(imported.graph.ops[1].after, std::vector<OpId>{0});
  EXPECT_EQ(imported.graph.tensors[3].alias_of, 0);
}

TEST(HloCosts, LayoutsDecideWhatACopyMoves) {
  auto const imported = import_text(R"(HloModule m
ENTRY e {
  a = f32[8,16]{1,0} parameter(0)
  same = f32[8,16]{1,0} copy(a)
  bits = f32[16,8]{0,1} transpose(a), dimensions={1,0}
  moved = f32[16,8]{1,0} transpose(a), dimensions={1,0}
  ROOT t = (f32[8,16], f32[16,8]{0,1}, f32[16,8]) tuple(same, bits, moved)
})");
  ASSERT_EQ(imported.graph.ops.size(), 1U);
  EXPECT_EQ(imported.graph.ops[0].kind, OpKind::compute) << "within the device's memory, not to the host's";
  EXPECT_EQ(imported.graph.ops[0].memory_bytes, 2 * 8 * 16 * 4);
  EXPECT_EQ(imported.report.free_instructions, 2);
}

TEST(HloCosts, UnknownOnesAreCountedAndChargedAllTheirBytes) {
  auto const imported = import_text(R"(HloModule m
ENTRY e {
  a = f32[8] parameter(0)
  b = f32[4] frobnicate(a)
  c = f32[4] frobnicate(a)
  ROOT d = f32[2] custom-call(b, c), custom_call_target="mystery"
})");
  ASSERT_EQ(imported.report.warnings.size(), 2U);
  EXPECT_EQ(imported.report.warnings[0].what, "frobnicate");
  EXPECT_EQ(imported.report.warnings[0].count, 2);
  EXPECT_EQ(imported.report.warnings[0].bytes, 2 * (32 + 16));
  EXPECT_EQ(imported.report.warnings[1].what, "custom-call \"mystery\"");
  EXPECT_EQ(imported.graph.ops[2].memory_bytes, 16 + 16 + 8);
  EXPECT_NE(to_string(imported.report).find("not costed: frobnicate (2 instructions)"), std::string::npos);
}

}  // namespace
}  // namespace weft::test
