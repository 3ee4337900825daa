#include <gtest/gtest.h>

#include <set>
#include <string>

#include "weft/data_type.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/reduce_op.hpp"

namespace weft {
namespace {

TEST(Names, EveryDataTypeParsesBackAndSaysItsSize) {
  std::set<std::string_view> names;
  for (int i = 0; is_valid(static_cast<DataType>(i)); ++i) {
    auto const type = static_cast<DataType>(i);
    EXPECT_EQ(parse_data_type(to_string(type)), type);
    names.insert(to_string(type));
    // The digits of the name are its bits.
    std::string_view const name = to_string(type);
    auto const bits =
        type == DataType::boolean ? 8 : std::stoul(std::string(name.substr(name.find_first_of("0123456789"))));
    EXPECT_EQ(bits, 8 * size_of(type)) << name;
  }
  EXPECT_EQ(names.size(), 17U);
  EXPECT_FALSE(is_valid(static_cast<DataType>(17)));
  EXPECT_EQ(to_string(static_cast<DataType>(17)), "invalid");
}

TEST(Names, DataTypesKeepTheirNumbers) {
  EXPECT_EQ(static_cast<int>(DataType::f64), 9);
  EXPECT_EQ(static_cast<int>(DataType::f8e4m3), 10);
  EXPECT_EQ(static_cast<int>(DataType::boolean), 14);
  EXPECT_EQ(static_cast<int>(DataType::u16), 16);
}

TEST(Names, DataTypesHaveOtherProgramsNamesToo) {
  EXPECT_EQ(parse_data_type("half"), DataType::f16);
  EXPECT_EQ(parse_data_type("bfloat16"), DataType::bf16);
  EXPECT_EQ(parse_data_type("float"), DataType::f32);
  EXPECT_EQ(parse_data_type("double"), DataType::f64);
  EXPECT_EQ(parse_data_type("uint8"), DataType::u8);
  EXPECT_EQ(parse_data_type("int64"), DataType::i64);
  for (auto const* name : {"f8e4m3", "fp8_e4m3", "float8_e4m3fn"})
    EXPECT_EQ(parse_data_type(name), DataType::f8e4m3) << name;
  for (auto const* name : {"f8e5m2", "fp8_e5m2", "float8_e5m2"})
    EXPECT_EQ(parse_data_type(name), DataType::f8e5m2) << name;
  EXPECT_EQ(parse_data_type("complex64"), DataType::c64);
  EXPECT_EQ(parse_data_type("complex128"), DataType::c128);
  EXPECT_EQ(parse_data_type("bool"), DataType::boolean);
  EXPECT_EQ(parse_data_type("int16"), DataType::i16);
  EXPECT_EQ(parse_data_type("f8"), std::nullopt);
  EXPECT_EQ(parse_data_type(""), std::nullopt);
  EXPECT_EQ(parse_data_type("F32"), std::nullopt);
}

TEST(Names, EveryReduceOpParsesBack) {
  std::set<std::string_view> names;
  for (int i = 0; is_valid(static_cast<ReduceOp>(i)); ++i) {
    auto const op = static_cast<ReduceOp>(i);
    EXPECT_EQ(parse_reduce_op(to_string(op)), op);
    names.insert(to_string(op));
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"sum", "avg", "prod", "min", "max", "land", "lor", "lxor", "band", "bor",
                                               "bxor", "premul_sum", "user"}));
  EXPECT_EQ(parse_reduce_op("mean"), std::nullopt);
  EXPECT_EQ(to_string(static_cast<ReduceOp>(13)), "invalid");
  EXPECT_EQ(static_cast<int>(ReduceOp::land), 5);
  EXPECT_EQ(static_cast<int>(ReduceOp::user), 12);
}

std::set<std::string> supported_by(DataType type) {
  std::set<std::string> ops;
  for (int i = 0; i < 16; ++i) {
    auto const op = static_cast<ReduceOp>(i);
    if (supports(type, op)) ops.emplace(to_string(op));
  }
  return ops;
}

TEST(Names, WhichTypesSupportWhichReductions) {
  using Ops = std::set<std::string>;
  Ops const all{"sum", "avg", "prod", "min", "max", "land", "lor", "lxor", "bor", "band", "bxor", "premul_sum", "user"};
  for (auto const type : {DataType::i8, DataType::u8, DataType::i16, DataType::u16, DataType::i32, DataType::u32,
                          DataType::i64, DataType::u64})
    EXPECT_EQ(supported_by(type), all) << to_string(type);
  for (auto const type :
       {DataType::f8e4m3, DataType::f8e5m2, DataType::f16, DataType::bf16, DataType::f32, DataType::f64})
    EXPECT_EQ(supported_by(type),
              (Ops{"sum", "avg", "prod", "min", "max", "land", "lor", "lxor", "premul_sum", "user"}))
        << to_string(type);
  for (auto const type : {DataType::c64, DataType::c128})
    EXPECT_EQ(supported_by(type), (Ops{"sum", "avg", "prod", "premul_sum", "user"})) << to_string(type);
  EXPECT_EQ(supported_by(DataType::boolean),
            (Ops{"sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "user"}));
  EXPECT_EQ(supported_by(static_cast<DataType>(17)), Ops{});
}

TEST(Names, ErrorsKeepTheirCodeAndMessage) {
  Error const error(ErrorCode::peer_lost, "rank 3 died");
  EXPECT_EQ(error.code(), ErrorCode::peer_lost);
  EXPECT_STREQ(error.what(), "rank 3 died");
  EXPECT_EQ(to_string(error.code()), "peer_lost");
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(ErrorCode::system); ++i) names.insert(to_string(static_cast<ErrorCode>(i)));
  EXPECT_EQ(names.size(), 8U);
  EXPECT_EQ(names.count("unknown"), 0U);
}

TEST(Names, Devices) {
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{DeviceType::cuda, 3}), "cuda:3");
}

}  // namespace
}  // namespace weft
