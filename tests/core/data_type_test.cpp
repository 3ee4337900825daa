#include "weft/data_type.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace weft {
namespace {

/// The value a 16-bit pattern stands for, by definition: (-1)^s · 2^(e - bias) · 1.m, from ldexp and not from bit
/// tricks.
double value_of(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  int const bias = (1 << (exponent_bits - 1)) - 1;
  int const exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  int const mantissa = bits & ((1 << mantissa_bits) - 1);
  double const sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

struct Format {
  int exponent_bits;
  int mantissa_bits;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
  char const* name;
};

Format const kHalf{5, 10, [](std::uint16_t bits) { return to_float(Half{bits}); },
                   [](float value) { return to_half(value).bits; }, "f16"};
Format const kBFloat16{8, 7, [](std::uint16_t bits) { return to_float(BFloat16{bits}); },
                       [](float value) { return to_bfloat16(value).bits; }, "bf16"};

class Conversion : public testing::TestWithParam<Format> {
 protected:
  [[nodiscard]] double value(std::uint32_t bits) const {
    return value_of(static_cast<std::uint16_t>(bits), GetParam().exponent_bits, GetParam().mantissa_bits);
  }
  [[nodiscard]] std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << GetParam().exponent_bits) - 1) << GetParam().mantissa_bits);
  }
  /// Checks a float against its neighbours in the narrow format: nearest, ties to the even pattern, beyond half a step
  /// above the largest finite value infinity.
  void expect_nearest_even(float input) const {
    std::uint16_t const got = GetParam().narrow(input);
    std::uint16_t const magnitude = got & 0x7fff;
    ASSERT_EQ(std::signbit(input), (got & 0x8000) != 0) << input;
    ASSERT_LE(magnitude, infinity()) << input;
    double const wanted = std::fabs(static_cast<double>(input));
    // Infinity stands for the next power of two when distances are compared.
    auto const position = [this](std::uint16_t bits) {
      return bits == infinity() ? std::ldexp(1.0, 1 << (GetParam().exponent_bits - 1)) : value(bits);
    };
    double const distance = std::fabs(position(magnitude) - wanted);
    if (magnitude > 0) {
      double const below = std::fabs(position(static_cast<std::uint16_t>(magnitude - 1)) - wanted);
      ASSERT_TRUE(distance < below || (distance == below && magnitude % 2 == 0))
          << std::hexfloat << input << " -> " << got;
    }
    if (magnitude < infinity()) {
      double const above = std::fabs(position(static_cast<std::uint16_t>(magnitude + 1)) - wanted);
      ASSERT_TRUE(distance < above || (distance == above && magnitude % 2 == 0))
          << std::hexfloat << input << " -> " << got;
    }
  }
};

TEST_P(Conversion, WidensEveryPatternExactly) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    float const got = GetParam().widen(static_cast<std::uint16_t>(bits));
    double const wanted = value(bits);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(got), wanted) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(wanted)) << bits;
    }
  }
}

TEST_P(Conversion, EveryPatternSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    auto const pattern = static_cast<std::uint16_t>(bits);
    std::uint16_t const again = GetParam().narrow(GetParam().widen(pattern));
    if (std::isnan(value(bits))) {
      ASSERT_TRUE(std::isnan(value(again))) << bits;
    } else {
      ASSERT_EQ(again, pattern);
    }
  }
}

TEST_P(Conversion, RoundsMidpointsAndTheirNeighboursToNearestEven) {
  for (std::uint16_t bits = 0; bits < infinity(); ++bits) {
    double const next =
        bits + 1 == infinity() ? std::ldexp(1.0, 1 << (GetParam().exponent_bits - 1)) : value(bits + 1U);
    auto const middle = static_cast<float>((value(bits) + next) / 2);
    for (float const magnitude : {middle, std::nextafterf(middle, 0.0F), std::nextafterf(middle, INFINITY)}) {
      if (std::isinf(magnitude)) continue;
      expect_nearest_even(magnitude);
      expect_nearest_even(-magnitude);
    }
    if (HasFatalFailure()) return;
  }
}

TEST_P(Conversion, RoundsRandomFloatsToNearestEven) {
  std::mt19937 random(20240917);
  for (int i = 0; i < 1'000'000; ++i) {
    float const input = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(input) || std::isinf(input)) continue;
    expect_nearest_even(input);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Conversion, KeepsNaNWhicheverBitsCarryIt) {
  for (unsigned bit = 0; bit < 23; ++bit) {
    for (std::uint32_t const sign : {0U, 0x8000'0000U}) {
      std::uint16_t const got = GetParam().narrow(std::bit_cast<float>(sign | 0x7f80'0000U | (1U << bit)));
      EXPECT_TRUE(std::isnan(value(got))) << bit;
      EXPECT_EQ((got & 0x8000) != 0, sign != 0);
    }
  }
}

TEST_P(Conversion, KeepsInfinityAndOverflowsToIt) {
  float const largest = std::numeric_limits<float>::max();
  for (float const input : {std::numeric_limits<float>::infinity(), largest}) {
    EXPECT_EQ(GetParam().narrow(input), infinity());
    EXPECT_EQ(GetParam().narrow(-input), infinity() | 0x8000);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Conversion, testing::Values(kHalf, kBFloat16),
                         [](auto const& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft
