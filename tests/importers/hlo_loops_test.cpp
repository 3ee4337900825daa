#include <gtest/gtest.h>

#include <string>

#include "importers/hlo_text.hpp"

namespace weft::test {
namespace {

/// for (i = 0; i < 3; ++i) { x = x · w[i]; kept[i] = x; }
constexpr char const* kLoop = R"(HloModule loop
body {
  p = (s32[], f32[16,16], f32[3,16,16], f32[3,16,16]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one)
  x = f32[16,16] get-tuple-element(p), index=1
  w = f32[3,16,16] get-tuple-element(p), index=2
  wi = f32[1,16,16] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={1,16,16}
  wj = f32[16,16] reshape(wi)
  y = f32[16,16] dot(x, wj), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  yi = f32[1,16,16] reshape(y)
  kept = f32[3,16,16] get-tuple-element(p), index=3
  more = f32[3,16,16] dynamic-update-slice(kept, yi, i, zero, zero)
  ROOT r = (s32[], f32[16,16], f32[3,16,16], f32[3,16,16]) tuple(next, y, w, more)
}
condition {
  p = (s32[], f32[16,16], f32[3,16,16], f32[3,16,16]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[16,16] parameter(0)
  w = f32[3,16,16] parameter(1)
  k = f32[3,16,16] parameter(2)
  zero = s32[] constant(0)
  init = (s32[], f32[16,16], f32[3,16,16], f32[3,16,16]) tuple(zero, x, w, k)
  loop = (s32[], f32[16,16], f32[3,16,16], f32[3,16,16]) while(init), condition=condition, body=body
  last = f32[16,16] get-tuple-element(loop), index=1
  all = f32[3,16,16] get-tuple-element(loop), index=3
  ROOT r = (f32[16,16], f32[3,16,16]) tuple(last, all)
})";

std::string unrolled_by_hand() {
  std::string text = R"(HloModule loop
ENTRY e {
  x0 = f32[16,16] parameter(0)
  w = f32[3,16,16] parameter(1)
  k0 = f32[3,16,16] parameter(2)
  zero = s32[] constant(0)
)";
  for (int i = 0; i < 3; ++i) {
    auto const now = std::to_string(i);
    auto const next = std::to_string(i + 1);
    text += " i" + now + " = s32[] constant(" + now + ")\n wi" + now + " = f32[1,16,16] dynamic-slice(w, i" + now +
            ", zero, zero), dynamic_slice_sizes={1,16,16}\n wj" + now + " = f32[16,16] reshape(wi" + now + ")\n x" +
            next + " = f32[16,16] dot(x" + now + ", wj" + now +
            "), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n yi" + now + " = f32[1,16,16] reshape(x" + next +
            ")\n k" + next + " = f32[3,16,16] dynamic-update-slice(k" + now + ", yi" + now + ", i" + now +
            ", zero, zero)\n";
  }
  return text + " ROOT r = (f32[16,16], f32[3,16,16]) tuple(x3, k3)\n}";
}

TEST(HloLoops, AreWhatOneWouldUnrollByHand) {
  auto const loop = import_text(kLoop).graph;
  auto const hand = import_text(unrolled_by_hand()).graph;
  ASSERT_EQ(loop.ops.size(), 9U);
  ASSERT_EQ(loop.ops.size(), hand.ops.size());
  for (std::size_t i = 0; i < loop.ops.size(); ++i) {
    SCOPED_TRACE(loop.ops[i].name);
    EXPECT_EQ(loop.ops[i].kind, hand.ops[i].kind);
    EXPECT_EQ(loop.ops[i].flops, hand.ops[i].flops);
    EXPECT_EQ(loop.ops[i].memory_bytes, hand.ops[i].memory_bytes);
    EXPECT_EQ(loop.ops[i].reads, hand.ops[i].reads);
    EXPECT_EQ(loop.ops[i].writes, hand.ops[i].writes);
    EXPECT_EQ(loop.ops[i].after, hand.ops[i].after);
    EXPECT_EQ(loop.ops[i].layer, static_cast<int>(i / 3));
  }
  ASSERT_EQ(loop.tensors.size(), hand.tensors.size());
  for (std::size_t i = 0; i < loop.tensors.size(); ++i) {
    EXPECT_EQ(loop.tensors[i].bytes, hand.tensors[i].bytes);
    EXPECT_EQ(loop.tensors[i].kept, hand.tensors[i].kept);
    EXPECT_EQ(loop.tensors[i].alias_of, hand.tensors[i].alias_of);
  }
}

struct Count {
  std::string first;
  std::string step;
  std::string direction;
  std::string limit;
  std::int64_t trips;  ///< -1: unknown
};

std::string counting(Count const& count) {
  return "HloModule m\nb {\n p = (s32[], f32[8]) parameter(0)\n i = s32[] get-tuple-element(p), index=0\n s = s32[] "
         "constant(" +
         count.step +
         ")\n n = s32[] add(i, s)\n x = f32[8] get-tuple-element(p), index=1\n y = f32[8] sort(x), dimensions={0}\n"
         " ROOT r = (s32[], f32[8]) tuple(n, y)\n}\nc {\n p = (s32[], f32[8]) parameter(0)\n i = s32[] "
         "get-tuple-element(p), index=0\n l = s32[] constant(" +
         count.limit + ")\n ROOT r = pred[] compare(i, l), direction=" + count.direction +
         "\n}\nENTRY e {\n x = f32[8] parameter(0)\n z = s32[] constant(" + count.first +
         ")\n y = s32[] copy(z)\n t = (s32[], f32[8]) tuple(y, x)\n ROOT w = (s32[], f32[8]) while(t), condition=c, "
         "body=b\n}";
}

TEST(HloLoops, TripsFollowFromFirstStepAndLimit) {
  for (Count const& count :
       {Count{"0", "1", "LT", "126", 126}, Count{"0", "1", "LE", "126", 127}, Count{"5", "3", "LT", "12", 3},
        Count{"5", "3", "LT", "14", 3}, Count{"5", "3", "LE", "14", 4}, Count{"10", "-2", "GT", "1", 5},
        Count{"10", "-2", "GE", "0", 6}, Count{"0", "2", "NE", "10", 5}, Count{"7", "-1", "NE", "0", 7},
        Count{"9", "1", "LT", "3", 0}, Count{"0", "2", "NE", "9", -1}, Count{"0", "-1", "LT", "3", -1},
        Count{"0", "0", "LT", "3", -1}, Count{"0", "1", "EQ", "0", -1},
        Count{"-9223372036854775807", "1", "LT", "9223372036854775807", -1}}) {
    SCOPED_TRACE(count.first + " +" + count.step + " " + count.direction + " " + count.limit);
    auto const imported = import_text(counting(count), {.unknown_trips = 2});
    ASSERT_EQ(imported.report.loops.size(), 1U);
    EXPECT_EQ(imported.report.loops[0].known, count.trips >= 0);
    EXPECT_EQ(imported.report.loops[0].trips, count.trips < 0 ? 2 : count.trips);
    EXPECT_EQ(imported.graph.ops.size(), static_cast<std::size_t>(count.trips < 0 ? 2 : count.trips));
    EXPECT_EQ(imported.report.warnings.size(), count.trips < 0 ? 1U : 0U);
  }
}

TEST(HloLoops, KnownTripCountsAreTaken) {
  auto text = counting({"0", "0", "LT", "3", -1});
  text.insert(text.rfind("body=b") + 6, R"(, backend_config={"known_trip_count":{"n":"4"}})");
  EXPECT_EQ(import_text(text).graph.ops.size(), 4U);
}

TEST(HloLoops, WhatGoesBackwardsHasItsLayersBackwards) {
  std::string text = kLoop;
  auto const replace = [&](std::string const& from, std::string const& to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace("next = s32", "two = s32[] constant(2)\n  b = s32[] subtract(two, i)\n  next = s32");
  replace("dynamic-slice(w, i", "dynamic-slice(w, b");
  auto const graph = import_text(text).graph;
  EXPECT_EQ(graph.ops.front().layer, 2);
  EXPECT_EQ(graph.ops.back().layer, 0);
}

TEST(HloLoops, MaxOpsBoundsWhatUnrollingMakes) {
  auto const message = refusal(counting({"0", "1", "LT", "1000000000", 0}), {.max_ops = 1000});
  EXPECT_NE(message.find("max_ops = 1000"), std::string::npos) << message;
  EXPECT_EQ(import_text(counting({"0", "1", "LT", "1000", 0}), {.max_ops = 1000}).graph.ops.size(), 1000U);
}

/// Each calls the one before twice: without operators there is nothing to count but the calls.
TEST(HloLoops, MaxOpsBoundsCallsOfCalls) {
  std::string text = "HloModule m\nf0 {\n ROOT p = f32[] parameter(0)\n}\n";
  for (int i = 1; i < 60; ++i) {
    auto const callee = "f" + std::to_string(i - 1);
    text += "f" + std::to_string(i) + " {\n p = f32[] parameter(0)\n a = f32[] call(p), to_apply=" + callee +
            "\n ROOT b = f32[] call(a), to_apply=" + callee + "\n}\n";
  }
  text += "ENTRY e {\n p = f32[] parameter(0)\n ROOT a = f32[] call(p), to_apply=f59\n}";
  EXPECT_NE(refusal(text, {.max_ops = 1000}).find("max_ops"), std::string::npos);
}

TEST(HloLoops, CallsNestedTooDeepAreRefused) {
  std::string text = "HloModule m\nf0 {\n ROOT p = f32[] parameter(0)\n}\n";
  for (int i = 1; i < 10'000; ++i) {
    text += "f" + std::to_string(i) + " {\n p = f32[] parameter(0)\n ROOT b = f32[] call(p), to_apply=f" +
            std::to_string(i - 1) + "\n}\n";
  }
  text += "ENTRY e {\n p = f32[] parameter(0)\n ROOT a = f32[] call(p), to_apply=f9999\n}";
  EXPECT_NE(refusal(text).find("calls nested deeper than 64"), std::string::npos);
}

TEST(HloLoops, OfAConditionalTheDearestBranchIsTaken) {
  auto const imported = import_text(R"(HloModule m
cheap {
  ROOT p = f32[64,64] parameter(0)
}
dear {
  p = f32[64,64] parameter(0)
  ROOT d = f32[64,64] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY e {
  which = s32[] parameter(0)
  x = f32[64,64] parameter(1)
  y = f32[64,64] parameter(2)
  ROOT c = f32[64,64] conditional(which, x, y), branch_computations={cheap, dear}
})");
  ASSERT_EQ(imported.graph.ops.size(), 1U);
  EXPECT_EQ(imported.graph.ops[0].flops, 2.0 * 64 * 64 * 64);
  EXPECT_EQ(imported.graph.ops[0].reads, std::vector<TensorId>{2});
  EXPECT_EQ(imported.report.conditionals, 1);
}

/// The update of a donated parameter goes into its memory, after all who read it.
TEST(HloLoops, DonatedParametersAreWrittenOver) {
  auto const imported = import_text(R"(HloModule m, num_partitions=2, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e {
  w = f32[64] parameter(0)
  g = f32[64] parameter(1)
  all = f32[128] all-gather(w), replica_groups=[1,2]<=[2], dimensions={0}
  n = f32[64] add(w, g)
  ROOT r = (f32[64], f32[128]) tuple(n, all)
})");
  auto const& graph = imported.graph;
  ASSERT_EQ(graph.ops.size(), 2U);
  EXPECT_EQ(graph.ops[1].kind, OpKind::update);
  EXPECT_EQ(graph.ops[1].after, std::vector<OpId>{0});
  EXPECT_EQ(graph.tensors[3].alias_of, 0);
  EXPECT_TRUE(graph.tensors[3].kept);
  EXPECT_FALSE(graph.tensors[0].kept) << "its old value is not needed";
  EXPECT_TRUE(graph.tensors[1].kept) << "the caller's";
}

}  // namespace
}  // namespace weft::test
