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
    EXPECT_EQ(std::stoul(std::string(name.substr(name.find_first_of("0123456789")))), 8 * size_of(type)) << name;
  }
  EXPECT_EQ(names.size(), 10U);
  EXPECT_FALSE(is_valid(static_cast<DataType>(10)));
  EXPECT_EQ(to_string(static_cast<DataType>(10)), "invalid");
}

TEST(Names, DataTypesHaveOtherProgramsNamesToo) {
  EXPECT_EQ(parse_data_type("half"), DataType::f16);
  EXPECT_EQ(parse_data_type("bfloat16"), DataType::bf16);
  EXPECT_EQ(parse_data_type("float"), DataType::f32);
  EXPECT_EQ(parse_data_type("double"), DataType::f64);
  EXPECT_EQ(parse_data_type("uint8"), DataType::u8);
  EXPECT_EQ(parse_data_type("int64"), DataType::i64);
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
  EXPECT_EQ(names, (std::set<std::string_view>{"sum", "avg", "prod", "min", "max"}));
  EXPECT_EQ(parse_reduce_op("mean"), std::nullopt);
  EXPECT_EQ(to_string(static_cast<ReduceOp>(5)), "invalid");
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
