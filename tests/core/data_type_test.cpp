#include "weft/data_type.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace weft {
namespace {

/// A float of 8 or 16 bits, by definition: (-1)^s · 2^(e - bias) · 1.m, from ldexp and not from bit tricks.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // else the largest exponent is ordinary, but for the last pattern, which is NaN
  float (*widen)(std::uint32_t);
  std::uint32_t (*narrow)(float);
  char const* name;

  [[nodiscard]] std::uint32_t sign() const { return 1U << (exponent_bits + mantissa_bits); }
  [[nodiscard]] std::uint32_t patterns() const { return 2 * sign(); }
  /// The pattern of overflow: infinity, or NaN.
  [[nodiscard]] std::uint32_t beyond() const { return has_infinity ? sign() - (1U << mantissa_bits) : sign() - 1; }
  [[nodiscard]] double value(std::uint32_t bits) const {
    int const bias = (1 << (exponent_bits - 1)) - 1;
    int const magnitude = static_cast<int>(bits & (sign() - 1));
    int const exponent = magnitude >> mantissa_bits;
    int const mantissa = magnitude & ((1 << mantissa_bits) - 1);
    double const factor = (bits & sign()) != 0 ? -1.0 : 1.0;
    if (magnitude >= static_cast<int>(beyond())) {
      return has_infinity && mantissa == 0 ? factor * std::numeric_limits<double>::infinity()
                                           : std::numeric_limits<double>::quiet_NaN();
    }
    if (exponent == 0) return factor * std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return factor * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  }
  /// What the pattern of overflow would stand for if it were an ordinary number.
  [[nodiscard]] double beyond_value() const { return 2 * value(beyond() - 1) - value(beyond() - 2); }
};

template <typename T>
T with_bits(std::uint32_t bits) {
  T value;
  value.bits = static_cast<decltype(value.bits)>(bits);
  return value;
}

Format const kHalf{5,
                   10,
                   true,
                   [](std::uint32_t bits) { return to_float(with_bits<Half>(bits)); },
                   [](float value) -> std::uint32_t { return to_half(value).bits; },
                   "f16"};
Format const kBFloat16{8,
                       7,
                       true,
                       [](std::uint32_t bits) { return to_float(with_bits<BFloat16>(bits)); },
                       [](float value) -> std::uint32_t { return to_bfloat16(value).bits; },
                       "bf16"};
Format const kE4M3{4,
                   3,
                   false,
                   [](std::uint32_t bits) { return to_float(with_bits<Float8E4M3>(bits)); },
                   [](float value) -> std::uint32_t { return to_float8_e4m3(value).bits; },
                   "f8e4m3"};
Format const kE5M2{5,
                   2,
                   true,
                   [](std::uint32_t bits) { return to_float(with_bits<Float8E5M2>(bits)); },
                   [](float value) -> std::uint32_t { return to_float8_e5m2(value).bits; },
                   "f8e5m2"};

class Conversion : public testing::TestWithParam<Format> {
 protected:
  /// Checks a float against its neighbours in the narrow format: nearest, ties to the even pattern, beyond half a step
  /// above the largest finite value what overflows become.
  static void expect_nearest_even(float input) {
    auto const& format = GetParam();
    std::uint32_t const got = format.narrow(input);
    std::uint32_t const magnitude = got & (format.sign() - 1);
    ASSERT_EQ(std::signbit(input), (got & format.sign()) != 0) << input;
    ASSERT_LE(magnitude, format.beyond()) << input;
    double const wanted = std::fabs(static_cast<double>(input));
    if (wanted >= format.beyond_value()) {
      ASSERT_EQ(magnitude, format.beyond()) << input;
      return;
    }
    auto const position = [&](std::uint32_t bits) {
      return bits == format.beyond() ? format.beyond_value() : format.value(bits);
    };
    double const distance = std::fabs(position(magnitude) - wanted);
    if (magnitude > 0) {
      double const below = std::fabs(position(magnitude - 1) - wanted);
      ASSERT_TRUE(distance < below || (distance == below && magnitude % 2 == 0))
          << std::hexfloat << input << " -> " << got;
    }
    if (magnitude < format.beyond()) {
      double const above = std::fabs(position(magnitude + 1) - wanted);
      ASSERT_TRUE(distance < above || (distance == above && magnitude % 2 == 0))
          << std::hexfloat << input << " -> " << got;
    }
  }
};

TEST_P(Conversion, WidensEveryPatternExactly) {
  for (std::uint32_t bits = 0; bits < GetParam().patterns(); ++bits) {
    float const got = GetParam().widen(bits);
    double const wanted = GetParam().value(bits);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(got), wanted) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(wanted)) << bits;
    }
  }
}

TEST_P(Conversion, EveryPatternSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < GetParam().patterns(); ++bits) {
    std::uint32_t const again = GetParam().narrow(GetParam().widen(bits));
    if (std::isnan(GetParam().value(bits))) {
      ASSERT_TRUE(std::isnan(GetParam().value(again))) << bits;
    } else {
      ASSERT_EQ(again, bits);
    }
  }
}

TEST_P(Conversion, RoundsMidpointsAndTheirNeighboursToNearestEven) {
  for (std::uint32_t bits = 0; bits < GetParam().beyond(); ++bits) {
    double const next = bits + 1 == GetParam().beyond() ? GetParam().beyond_value() : GetParam().value(bits + 1);
    auto const middle = static_cast<float>((GetParam().value(bits) + next) / 2);
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
      std::uint32_t const got = GetParam().narrow(std::bit_cast<float>(sign | 0x7f80'0000U | (1U << bit)));
      EXPECT_TRUE(std::isnan(GetParam().value(got))) << bit;
      EXPECT_EQ((got & GetParam().sign()) != 0, sign != 0);
    }
  }
}

TEST_P(Conversion, OverflowsAndInfinityGoBeyond) {
  float const largest = std::numeric_limits<float>::max();
  for (float const input : {std::numeric_limits<float>::infinity(), largest}) {
    EXPECT_EQ(GetParam().narrow(input), GetParam().beyond());
    EXPECT_EQ(GetParam().narrow(-input), GetParam().beyond() | GetParam().sign());
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Conversion, testing::Values(kHalf, kBFloat16, kE4M3, kE5M2),
                         [](auto const& test) { return std::string(test.param.name); });

TEST(Float8, HasTheStandardsLandmarks) {
  EXPECT_EQ(to_float(Float8E4M3{0x7e}), 448.0F);
  EXPECT_EQ(to_float(Float8E4M3{0x01}), 0x1p-9F);
  EXPECT_TRUE(std::isnan(to_float(Float8E4M3{0x7f})) && std::isnan(to_float(Float8E4M3{0xff})));
  EXPECT_EQ(to_float8_e4m3(464.0F).bits, 0x7e);
  EXPECT_EQ(to_float8_e4m3(std::nextafterf(464.0F, 500.0F)).bits, 0x7f);
  EXPECT_EQ(to_float(Float8E5M2{0x7b}), 57344.0F);
  EXPECT_EQ(to_float(Float8E5M2{0x01}), 0x1p-16F);
  EXPECT_EQ(to_float8_e5m2(61440.0F).bits, 0x7c);
}

}  // namespace
}  // namespace weft
