#include "weft/convert.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "weft/error.hpp"

namespace weft::test {
namespace {

constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::f16};

double at(Buffer const& buffer, std::size_t i) {
  switch (buffer.dtype()) {
    case DataType::bf16: return static_cast<double>(to_float(buffer.as<BFloat16>()[i]));
    case DataType::f16: return static_cast<double>(to_float(buffer.as<Half>()[i]));
    default: return static_cast<double>(buffer.as<float>()[i]);
  }
}

// Half a unit in the last place of what is narrower, and exact where the value exists in both.
TEST(Convert, RoundsToNearestBetweenAllTypes) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> values(-100, 100);
  for (DataType const from : kTypes) {
    for (DataType const to : kTypes) {
      for (std::size_t const count : {0UL, 1UL, 7UL, 64UL, 1001UL}) {
        Buffer exact = Buffer::host(count, DataType::f32);
        for (float& value : exact.as<float>()) value = values(random);
        Buffer const source = Buffer::host(count, from);
        Buffer const target = Buffer::host(count, to);
        convert(exact.view(), source.view());
        convert(source.view(), target.view());
        double const place = to == DataType::bf16 ? 0x1p-8 : to == DataType::f16 ? 0x1p-11 : 0;
        for (std::size_t i = 0; i < count; ++i) {
          double const expected = at(source, i);
          ASSERT_LE(std::abs(at(target, i) - expected), from == to ? 0 : place * std::abs(expected)) << i;
        }
      }
    }
  }
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
