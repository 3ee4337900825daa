#include "kernels/cpu/wire.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/optim/compress.hpp"
#include "kernels/cpu/optim/gradients.hpp"
#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/wire.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

// A block is a scale byte, which means 2^(byte − 127), or NaN if it is 255, and its elements as e4m3. Loops run over
// whole blocks, which compilers vectorize; short blocks are padded with zeros.

constexpr std::size_t kBlock = kWireBlock;
constexpr std::uint32_t kSign = 0x80000000U;
constexpr std::uint32_t kInfinity = 0x7f800000U;
constexpr std::uint32_t kNaN = 0x7fc00000U;
constexpr std::uint32_t kFraction = 0x7fffffU;
constexpr std::uint32_t kMostFraction = 0x600000U;  // of 1.75
constexpr std::uint8_t kNotANumber = 255;
constexpr std::uint8_t kNanElement = 0x7f;

// The smallest scale with which every element fits e4m3, whose largest value is 1.75 · 2^8.
HWY_INLINE int scale_of(std::uint32_t largest) {
  int const exponent = static_cast<int>(largest >> 23U);
  bool const above = (largest & kFraction) > kMostFraction;
  return std::max(0, exponent - 8 + (above ? 1 : 0));
}

HWY_INLINE float power_of_two(int exponent) {  // −127 to 127
  return exponent > -127 ? std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23U) : 0x1p-127F;
}

// The e4m3 byte of a number whose magnitude is at most 448.
HWY_INLINE std::uint8_t element_of(float scaled) {
  auto const bits = std::bit_cast<std::uint32_t>(scaled);
  auto const magnitude = bits & ~kSign;
  // Below 2^−6 the values are multiples of 2^−9: adding 2^14 leaves the multiple in the float's last bits.
  auto const small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 16384.0F) - 0x46800000U;
  auto const normal = ((magnitude + 0x7ffffU + ((magnitude >> 20U) & 1U)) >> 20U) - (120U << 3U);
  return static_cast<std::uint8_t>((magnitude < 0x3c800000U ? small : normal) | (bits & kSign) >> 24U);
}

HWY_INLINE float value_of(std::uint8_t element) {
  std::uint32_t const magnitude = element & 0x7fU;
  std::uint32_t const normal = (magnitude << 20U) + (120U << 23U);
  float const small = static_cast<float>(static_cast<int>(magnitude)) * 0x1p-9F;
  auto const bits = magnitude < 8 ? std::bit_cast<std::uint32_t>(small) : normal;
  return std::bit_cast<float>(bits | (static_cast<std::uint32_t>(element) & 0x80U) << 24U);
}

// `wire` has room for a whole block. False if not all values are finite.
HWY_INLINE bool pack_block(float const* values, std::uint8_t* wire) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & ~kSign);
  }
  if (largest >= kInfinity) {
    std::memset(wire + 1, kNanElement, kBlock);
    wire[0] = kNotANumber;
    return false;
  }
  int const scale = scale_of(largest);
  wire[0] = static_cast<std::uint8_t>(scale);
  float const inverse = power_of_two(127 - scale);
  for (std::size_t i = 0; i < kBlock; ++i) wire[i + 1] = element_of(values[i] * inverse);
  return true;
}

HWY_INLINE void unpack_block(std::uint8_t const* wire, float* values) {
  float const scale =
      wire[0] == kNotANumber ? std::bit_cast<float>(kNaN) : power_of_two(static_cast<int>(wire[0]) - 127);
  for (std::size_t i = 0; i < kBlock; ++i) values[i] = value_of(wire[i + 1]) * scale;
}

HWY_INLINE void pack_with_residual(float const* values, float* residual, std::uint8_t* wire) {
  float whole[kBlock];
  float arrives[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) whole[i] = values[i] + residual[i];
  if (!pack_block(whole, wire)) return std::fill(residual, residual + kBlock, 0.0F);
  unpack_block(wire, arrives);
  for (std::size_t i = 0; i < kBlock; ++i) {
    bool const is_finite = (std::bit_cast<std::uint32_t>(arrives[i]) & ~kSign) < kInfinity;  // near f32's end it is not
    residual[i] = is_finite ? whole[i] - arrives[i] : 0.0F;
  }
}

void pack_blocks(float const* values, float* residual, std::uint8_t* wire, std::size_t count) {
  for (; count >= kBlock; count -= kBlock, values += kBlock, wire += kBlock + 1) {
    if (residual == nullptr) {
      pack_block(values, wire);
      continue;
    }
    pack_with_residual(values, residual, wire);
    residual += kBlock;
  }
  if (count == 0) return;
  float padded[kBlock] = {};
  std::uint8_t block[kBlock + 1];
  std::memcpy(padded, values, count * sizeof(float));
  if (residual == nullptr) {
    pack_block(padded, block);
  } else {
    float residuals[kBlock] = {};
    std::memcpy(residuals, residual, count * sizeof(float));
    pack_with_residual(padded, residuals, block);
    std::memcpy(residual, residuals, count * sizeof(float));
  }
  std::memcpy(wire, block, count + 1);
}

void unpack_blocks(std::uint8_t const* wire, float* values, std::size_t count) {
  for (; count >= kBlock; count -= kBlock, values += kBlock, wire += kBlock + 1) unpack_block(wire, values);
  if (count == 0) return;
  float padded[kBlock];
  std::uint8_t block[kBlock + 1] = {};
  std::memcpy(block, wire, count + 1);
  unpack_block(block, padded);
  std::memcpy(values, padded, count * sizeof(float));
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(pack_blocks);
HWY_EXPORT(unpack_blocks);

std::size_t wire_bytes(WireFormat format, std::size_t count) noexcept {
  switch (format) {
    case WireFormat::f32: return count * sizeof(float);
    case WireFormat::bf16: return count * size_of(DataType::bf16);
    case WireFormat::fp8: return count + (count + kWireBlock - 1) / kWireBlock;
  }
  return 0;
}

void pack(WireFormat format, float const* values, float* residual, void* wire, std::size_t count) {
  if (format == WireFormat::fp8) {
    return HWY_DYNAMIC_DISPATCH(pack_blocks)(values, residual, static_cast<std::uint8_t*>(wire), count);
  }
  if (residual != nullptr) return compress_with_feedback(values, residual, wire, DataType::bf16, count);
  convert(values, DataType::f32, wire, DataType::bf16, count);
}

void unpack(WireFormat format, void const* wire, float* values, std::size_t count) {
  if (format == WireFormat::fp8) {
    return HWY_DYNAMIC_DISPATCH(unpack_blocks)(static_cast<std::uint8_t const*>(wire), values, count);
  }
  convert(wire, DataType::bf16, values, DataType::f32, count);
}

}  // namespace weft::kernels
#endif
