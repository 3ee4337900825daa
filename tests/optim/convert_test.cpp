#include "weft/convert.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "weft/error.hpp"

namespace weft::test {
namespace {

struct Type {
  DataType dtype;
  double place;  ///< half a unit in the last place of 1
  double least;  ///< half of the smallest number above 0, where 100 and less come near it
};

constexpr Type kTypes[] = {
    {DataType::f32, 0, 0}, {DataType::bf16, 0x1p-8, 0},         {DataType::f16, 0x1p-11, 0},
    {DataType::f64, 0, 0}, {DataType::f8e4m3, 0x1p-4, 0x1p-10}, {DataType::f8e5m2, 0x1p-3, 0x1p-17}};

double at(Buffer const& buffer, std::size_t i) {
  switch (buffer.dtype()) {
    case DataType::bf16: return static_cast<double>(to_float(buffer.as<BFloat16>()[i]));
    case DataType::f16: return static_cast<double>(to_float(buffer.as<Half>()[i]));
    case DataType::f8e4m3: return static_cast<double>(to_float(buffer.as<Float8E4M3>()[i]));
    case DataType::f8e5m2: return static_cast<double>(to_float(buffer.as<Float8E5M2>()[i]));
    case DataType::f64: return buffer.as<double>()[i];
    default: return static_cast<double>(buffer.as<float>()[i]);
  }
}

// Half a unit in the last place of what is narrower, and exact where the value exists in both.
TEST(Convert, RoundsToNearestBetweenAllTypes) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> values(-100, 100);
  for (auto const& [from, unused_place, unused_least] : kTypes) {
    for (auto const& [to, place, least] : kTypes) {
      for (std::size_t const count : {0UL, 1UL, 7UL, 64UL, 1001UL, 2049UL}) {
        Buffer exact = Buffer::host(count, DataType::f32);
        for (float& value : exact.as<float>()) value = values(random);
        Buffer const source = Buffer::host(count, from);
        Buffer const target = Buffer::host(count, to);
        convert(exact.view(), source.view());
        convert(source.view(), target.view());
        for (std::size_t i = 0; i < count; ++i) {
          double const expected = at(source, i);
          ASSERT_LE(std::abs(at(target, i) - expected), from == to ? 0 : std::max(least, place * std::abs(expected)))
              << to_string(from) << " to " << to_string(to) << ' ' << i;
        }
      }
    }
  }
}

TEST(Convert, BetweenEqualTypesIsExact) {
  std::vector<double> const exact{0.1, 1e300, -5e-324};
  std::vector<double> copied(exact.size());
  convert(std::span(exact), std::span(copied));
  EXPECT_EQ(copied, exact);
}

TEST(Convert, RefusesWhatItCannotConvert) {
  Buffer const three = Buffer::host(3, DataType::f32);
  Buffer const four = Buffer::host(4, DataType::bf16);
  Buffer const integers = Buffer::host(3, DataType::i32);
  EXPECT_THROW(convert(three.view(), four.view()), Error);
  EXPECT_THROW(convert(three.view(), integers.view()), Error);
  EXPECT_THROW(convert(BufferView(nullptr, 3, DataType::f32), three.view()), Error);
}

}  // namespace
}  // namespace weft::test
