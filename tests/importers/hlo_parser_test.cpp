#include <gtest/gtest.h>

#include <string>

#include "importers/hlo/attributes.hpp"
#include "importers/hlo/module.hpp"
#include "importers/hlo_text.hpp"

namespace weft::test {
namespace {

constexpr char const* kSmall = R"(HloModule small, num_partitions=4, input_output_alias={ {0}: (0, {}, may-alias) }

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}

ENTRY %main (x: bf16[4,8], y: s4[3]) -> (bf16[8,4], f32[]) {
  %x = bf16[4,8]{1,0:T(8,128)S(1)} parameter(0), sharding={devices=[2,2]<=[4] metadata={op_name="a}b,c"}}
  y = s4[3]{0} parameter(1)
  %t = bf16[8,4]{0,1} transpose(bf16[4,8]{1,0} %x), dimensions={1,0}, metadata={op_name="x\"y}" source_line=3}
  %c = f32[] constant(-inf)
  ROOT %r = (bf16[8,4]{0,1}, /*index=1*/f32[]) tuple(%t, %c)
}
)";

TEST(HloParser, ReadsShapesOperandsAndAttributes) {
  auto const module = hlo::parse_module(kSmall, "test.hlo");
  EXPECT_EQ(module.name, "small");
  ASSERT_EQ(module.computations.size(), 2U);
  EXPECT_EQ(hlo::find(module.attributes, "num_partitions"), "4");
  auto const& main = module.computations[static_cast<std::size_t>(module.entry)];
  ASSERT_EQ(main.instructions.size(), 5U);
  auto const& x = main.instructions[0];
  EXPECT_EQ(x.shape.dims, (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(x.shape.layout, (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(x.shape.bytes, 64);
  EXPECT_EQ(main.instructions[1].shape.bytes, 2) << "three elements of four bits";
  auto const& t = main.instructions[2];
  EXPECT_EQ(t.operands, std::vector<int>{0});
  EXPECT_EQ(hlo::integers(module, t, "dimensions"), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(hlo::find(t, "metadata"), R"({op_name="x\"y}" source_line=3})");
  EXPECT_EQ(main.instructions[3].literal, "-inf");
  auto const& root = main.instructions[static_cast<std::size_t>(main.root)];
  EXPECT_EQ(root.shape.leaves, 2);
  EXPECT_EQ(root.shape.parts[1].first_leaf, 1);
  EXPECT_EQ(root.shape.bytes, 68);
}

TEST(HloParser, UnknownOpcodesAndAttributesAreKept) {
  auto const module = hlo::parse_module(R"(HloModule m
ENTRY main {
  p = f32[2] parameter(0)
  ROOT z = f32[2] frobnicate(p, p), flavour={{a=1},{b}}, strength=7
})",
                                        "test.hlo");
  auto const& z = module.computations[0].instructions[1];
  EXPECT_EQ(z.opcode, "frobnicate");
  EXPECT_EQ(hlo::find(z, "flavour"), "{{a=1},{b}}");
  EXPECT_EQ(hlo::integer(module, z, "strength"), 7);
}

TEST(HloParser, TablesOfSourcesAreSkipped) {
  auto const module = hlo::parse_module(R"(HloModule m, num_partitions=2

FileNames
1 "/src/a \"{.py"

FunctionNames
1 "<module>"
2 "main"

FileLocations
1 {file_name_id=1 function_name_id=2 line=153 end_line=153 column=2 end_column=31}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


FileNames {
  ROOT p = f32[2] parameter(0)
}
ENTRY main {
  p = f32[2] parameter(0)
  ROOT z = f32[2] call(p), to_apply=FileNames, metadata={op_name="z" stack_frame_id=1}
})",
                                        "test.hlo");
  ASSERT_EQ(module.computations.size(), 2U);
  EXPECT_EQ(module.computations[0].name, "FileNames") << "may be a computation's name all the same";
  EXPECT_EQ(hlo::find(module.attributes, "num_partitions"), "2");
}

struct Malformed {
  std::string name{};
  std::string text{};     ///< from the third line on: the entry's instructions, which start in column 2
  std::string message{};  ///< with line and column
};

class HloMalformed : public testing::TestWithParam<Malformed> {};

TEST_P(HloMalformed, IsRefusedWithLineAndColumn) {
  auto const message = refusal("HloModule m\nENTRY e {\n " + GetParam().text);
  EXPECT_NE(message.find("test.hlo:" + GetParam().message), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Entries, HloMalformed,
    testing::Values(
        Malformed{"NoEnd", "p = f32[] parameter(0)\n", "4:1: e does not end"},
        Malformed{"UnknownOperand", "ROOT a = f32[] negate(%b)\n}", "3:25: operand b is not defined above"},
        Malformed{"TwiceNamed", "a = f32[] parameter(0)\n a = f32[] parameter(1)\n}", "4:2: a second instruction a"},
        Malformed{"TwoEntries", "a = f32[] parameter(0)\n}\nENTRY f {\n a = f32[] parameter(0)\n}",
                  "7:2: a second ENTRY"},
        Malformed{"NoType", "a = f33[] parameter(0)\n}", "3:6: \"f33\" is no element type"},
        Malformed{"NegativeDim", "a = f32[-1] parameter(0)\n}", "3:12: a dimension of -1"},
        Malformed{"TooLarge", "a = f32[9999999999,9999999999] parameter(0)\n}", "3:31: an array of more elements"},
        Malformed{"WrongLayout", "a = f32[2,2]{0,0} parameter(0)\n}", "3:18: a layout that is no order"},
        Malformed{"MissingParameter", "a = f32[] parameter(1)\n}", "2:7: e has no parameter(0)"},
        Malformed{"HugeParameter", "a = f32[] parameter(99999999999)\n}", "3:33: parameter(99999999999): numbers"},
        Malformed{"OpenQuote", "a = f32[] parameter(0), metadata={op=\"x}\n}", "3:35: a quote that starts here"},
        Malformed{"OpenBracket", "a = f32[] parameter(0), metadata={{x}\n{", "3:35: a bracket that opens here"},
        Malformed{"NoSuchElement", "p = (f32[]) parameter(0)\n ROOT a = f32[] get-tuple-element(p), index=1\n}",
                  "4:7: get-tuple-element a: index 1 of a tuple of 1"},
        Malformed{"TupleOfOtherShape", "p = f32[] parameter(0)\n ROOT a = (f32[], f32[]) tuple(p)\n}",
                  "4:7: tuple a: fewer operands than its shape"},
        Malformed{"NoCallee", "p = f32[] parameter(0)\n ROOT a = f32[] call(p), to_apply=%g\n}",
                  "4:36: there is no computation g"},
        Malformed{"CallsItself", "p = f32[] parameter(0)\n ROOT a = f32[] call(p), to_apply=%e\n}",
                  "4:7: a: a computation that calls itself"},
        Malformed{"WrongArguments", "ROOT a = f32[] call(), to_apply=%g\n}\ng {\n ROOT p = f32[] parameter(0)\n}",
                  "3:7: call a: its operands or results"},
        Malformed{"LargerView", "p = f32[2] parameter(0)\n ROOT a = f32[3] reshape(p)\n}",
                  "4:7: reshape a: it has other bytes than its operand"},
        Malformed{"LargerSum",
                  "p = f32[4] parameter(0)\n ROOT a = f32[3] all-reduce(p), replica_groups={{0,1}}, to_apply=%g\n}\n"
                  "g {\n x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT s = f32[] add(x, y)\n}",
                  "4:7: all-reduce a: it has 12 bytes, and all_reduce of 16 bytes among 2 ranks 16"},
        Malformed{"GathersTooLittle",
                  "p = f32[4] parameter(0)\n ROOT a = f32[4] all-gather(p), replica_groups={{0,1}}, dimensions={0}\n}",
                  "4:7: all-gather a: it has 16 bytes, and all_gather of 16 bytes among 2 ranks 32"},
        Malformed{
            "ScattersTooMuch",
            "p = f32[5] parameter(0)\n ROOT a = f32[3] reduce-scatter(p), replica_groups={{0,1}}, dimensions={0}, "
            "to_apply=%g\n}\ng {\n x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT s = f32[] add(x, y)\n}",
            "4:7: reduce-scatter a: it has 12 bytes, and reduce_scatter of 20 bytes among 2 ranks 10"},
        Malformed{"BadContraction", "p = f32[2] parameter(0)\n ROOT a = f32[] dot(p, p), lhs_contracting_dims={3}\n}",
                  "4:7: a: its first operand has no dimension 3"}),
    [](auto const& named) { return named.param.name; });

TEST(HloParser, OtherTextsAreRefused) {
  EXPECT_NE(refusal("hello").find("test.hlo:1:1: HLO text starts"), std::string::npos);
  EXPECT_NE(refusal("").find("test.hlo:1:1: HLO text starts"), std::string::npos);
  EXPECT_NE(refusal("HloModule m\n").find("test.hlo:2:1: no ENTRY"), std::string::npos);
  EXPECT_NE(refusal("HloModule m, input_output_alias={ {}: (7, {}, may-alias) }\nENTRY e {\n p = f32[] parameter(0)\n}")
                .find("test.hlo:1:41: no such parameter"),
            std::string::npos);
}

TEST(HloParser, DeepNestingIsRefused) {
  EXPECT_NE(refusal("HloModule m\nENTRY e {\n p = " + std::string(100'000, '(')).find("nested deeper than 64"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::test
