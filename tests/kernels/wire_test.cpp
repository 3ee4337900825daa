#include "kernels/cpu/wire.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/simd_targets.hpp"
#include "weft/data_type.hpp"

namespace weft::test {
namespace {

using kernels::kWireBlock;

std::vector<float> packed_and_back(WireFormat format, std::vector<float> const& values, float* residual = nullptr) {
  std::vector<std::byte> wire(kernels::wire_bytes(format, values.size()) + 1, std::byte{0x5a});
  kernels::pack(format, values.data(), residual, wire.data(), values.size());
  EXPECT_EQ(wire.back(), std::byte{0x5a});  // nothing beyond its end
  std::vector<float> got(values.size());
  kernels::unpack(format, wire.data(), got.data(), got.size());
  return got;
}

/// Of every magnitude that f32 has, some of one scale, some zeros.
std::vector<float> some_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto const kind = random() % 8;
    values[i] = kind == 0   ? 0.0F
                : kind == 1 ? std::ldexp(normal(random), static_cast<int>(random() % 200) - 100)
                            : normal(random);
  }
  return values;
}

/// What weft/wire_format.hpp promises, in double precision.
double bound(WireFormat format, std::vector<float> const& values, std::size_t i) {
  double const own = std::abs(static_cast<double>(values[i]));
  if (format == WireFormat::bf16) return std::max(own * 0x1p-8, 0x1p-134);
  double largest = 0;
  auto const first = i / kWireBlock * kWireBlock;
  for (auto j = first; j < std::min(first + kWireBlock, values.size()); ++j) {
    largest = std::max(largest, std::abs(static_cast<double>(values[j])));
  }
  return std::max({own * 0x1p-4, largest * 0x1p-17, 0x1p-137});
}

class WireTest : public ::testing::TestWithParam<WireFormat> {};

TEST_P(WireTest, ErrorsAreWithinTheirBound) {
  for (auto const target : runnable_targets()) {
    UseTarget const use(target);
    for (std::size_t const count : {0, 1, 31, 32, 33, 64, 1000, 4099}) {
      auto const values = some_values(count, static_cast<std::uint32_t>(count));
      auto const got = packed_and_back(GetParam(), values);
      for (std::size_t i = 0; i < count; ++i) {
        auto const error = std::abs(static_cast<double>(got[i]) - static_cast<double>(values[i]));
        ASSERT_LE(error, bound(GetParam(), values, i)) << values[i] << " at " << i << " of " << count;
      }
    }
  }
}

TEST_P(WireTest, ErrorsOfTheLeastValuesAreWithinTheirBoundToo) {
  std::mt19937 random(13);
  for (auto const target : runnable_targets()) {
    UseTarget const use(target);
    for (int exponent = -149; exponent < -100; ++exponent) {
      std::vector<float> values(3 * kWireBlock);
      for (auto& value : values) value = std::ldexp(static_cast<float>(random() % 4096) / 2048 - 1, exponent);
      auto const got = packed_and_back(GetParam(), values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        auto const error = std::abs(static_cast<double>(got[i]) - static_cast<double>(values[i]));
        ASSERT_LE(error, bound(GetParam(), values, i)) << values[i] << " at " << i;
      }
    }
  }
}

TEST_P(WireTest, TheGreatestValuesArriveAsInfinityAndLeaveNothingBehind) {
  auto const least = std::ldexp(GetParam() == WireFormat::bf16 ? 2 - 0x1p-8F : 2 - 0x1p-4F, 127);
  for (auto const target : runnable_targets()) {
    UseTarget const use(target);
    std::vector<float> values(kWireBlock, 1.0F);
    values[5] = least;
    values[6] = std::nextafter(-least, 0.0F);
    values[7] = std::numeric_limits<float>::max();
    std::vector<float> residual(values.size());
    auto const got = packed_and_back(GetParam(), values, residual.data());
    EXPECT_EQ(got[5], std::numeric_limits<float>::infinity());
    EXPECT_LE(std::abs(static_cast<double>(got[6]) - static_cast<double>(values[6])), bound(GetParam(), values, 6));
    EXPECT_EQ(got[7], std::numeric_limits<float>::infinity());
    EXPECT_EQ(residual[5], 0.0F);
    EXPECT_EQ(residual[6], values[6] - got[6]);
    EXPECT_EQ(residual[7], 0.0F);
  }
}

TEST_P(WireTest, WhatCameStaysAsItIs) {
  auto const once = packed_and_back(GetParam(), some_values(5000, 5));
  auto const twice = packed_and_back(GetParam(), once);
  EXPECT_EQ(std::memcmp(once.data(), twice.data(), once.size() * sizeof(float)), 0);
}

TEST_P(WireTest, EveryTargetPacksTheSameBytes) {
  auto const values = some_values(3001, 7);
  std::vector<std::vector<std::byte>> wires;
  for (auto const target : runnable_targets()) {
    UseTarget const use(target);
    wires.emplace_back(kernels::wire_bytes(GetParam(), values.size()));
    kernels::pack(GetParam(), values.data(), nullptr, wires.back().data(), values.size());
    EXPECT_EQ(wires.back(), wires.front()) << "target " << target;
  }
}

TEST_P(WireTest, PiecesOfWholeBlocksPackAsTheWholeDoes) {
  auto const values = some_values(10 * kWireBlock + 5, 9);
  std::vector<std::byte> whole(kernels::wire_bytes(GetParam(), values.size()));
  kernels::pack(GetParam(), values.data(), nullptr, whole.data(), values.size());
  std::vector<std::byte> pieces(whole.size());
  auto const first = 3 * kWireBlock;
  kernels::pack(GetParam(), values.data(), nullptr, pieces.data(), first);
  kernels::pack(GetParam(), values.data() + first, nullptr, pieces.data() + kernels::wire_bytes(GetParam(), first),
                values.size() - first);
  EXPECT_EQ(pieces, whole);
}

TEST_P(WireTest, WhatIsNotFiniteArrivesAsSuchAndLeavesNothingBehind) {
  auto const infinity = std::numeric_limits<float>::infinity();
  for (float const bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(100, 1.1F);
    values[70] = bad;
    std::vector<float> residual(100, 0.01F);
    auto const got = packed_and_back(GetParam(), values, residual.data());
    EXPECT_FALSE(std::isfinite(got[70]));
    EXPECT_TRUE(std::isfinite(got[0]));
    EXPECT_EQ(residual[70], 0.0F);
    EXPECT_TRUE(std::all_of(residual.begin(), residual.end(), [](float rest) { return std::isfinite(rest); }));
  }
}

TEST_P(WireTest, ResidualsAreWhatRoundingTook) {
  auto const values = some_values(777, 11);
  std::vector<float> residual(values.size());
  auto const got = packed_and_back(GetParam(), values, residual.data());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(residual[i], values[i] - got[i]) << i;
}

TEST_P(WireTest, TheMeanOfManyTimesIsExact) {
  constexpr int kTimes = 1000;
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) + 0.3F);
  std::vector<float> residual(values.size());
  std::vector<double> sum(values.size());
  for (int time = 0; time < kTimes; ++time) {
    auto const got = packed_and_back(GetParam(), values, residual.data());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(got[i]);
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    auto const error = std::abs(sum[i] / kTimes - static_cast<double>(values[i]));
    EXPECT_LE(error, 2 * bound(GetParam(), values, i) / kTimes + 1e-7)
        << i;  // one residual is left, and f32's rounding
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, WireTest, testing::Values(WireFormat::bf16, WireFormat::fp8),
                         [](auto const& one) { return std::string(to_string(one.param)); });

// Against the scalar conversion, which other tests hold against the format's definition.
TEST(WireFp8Test, ElementsAreE4m3OfTheBlocksScale) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<float> values(kWireBlock);
    for (auto& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0xbfffffffU);
    std::vector<std::uint8_t> wire(kernels::wire_bytes(WireFormat::fp8, values.size()));
    kernels::pack(WireFormat::fp8, values.data(), nullptr, wire.data(), values.size());
    double const scale = std::ldexp(1.0, static_cast<int>(wire[0]) - 127);
    double largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto const scaled = static_cast<double>(values[i]) / scale;
      largest = std::max(largest, std::abs(scaled));
      ASSERT_EQ(wire[i + 1], to_float8_e4m3(static_cast<float>(scaled)).bits) << values[i] << " by " << scale;
    }
    EXPECT_LE(largest, 448);
    EXPECT_TRUE(wire[0] == 0 || largest > 224) << largest;  // no larger scale than needed
  }
}

}  // namespace
}  // namespace weft::test
