#include "weft/data_type.hpp"

#include <array>
#include <bit>

namespace weft {
namespace {

struct Name {
  std::string_view name;
  DataType type;
};

// The first ten are to_string()'s, in enum order; the rest are what nccl-tests and PyTorch call the same types.
constexpr std::array kNames{
    Name{"i8", DataType::i8},       Name{"u8", DataType::u8},         Name{"i32", DataType::i32},
    Name{"u32", DataType::u32},     Name{"i64", DataType::i64},       Name{"u64", DataType::u64},
    Name{"f16", DataType::f16},     Name{"bf16", DataType::bf16},     Name{"f32", DataType::f32},
    Name{"f64", DataType::f64},     Name{"int8", DataType::i8},       Name{"char", DataType::i8},
    Name{"uint8", DataType::u8},    Name{"byte", DataType::u8},       Name{"int32", DataType::i32},
    Name{"int", DataType::i32},     Name{"uint32", DataType::u32},    Name{"int64", DataType::i64},
    Name{"long", DataType::i64},    Name{"uint64", DataType::u64},    Name{"half", DataType::f16},
    Name{"float16", DataType::f16}, Name{"bfloat16", DataType::bf16}, Name{"float", DataType::f32},
    Name{"float32", DataType::f32}, Name{"double", DataType::f64},    Name{"float64", DataType::f64},
};

constexpr std::uint32_t kSignMask = 0x8000'0000U;
constexpr std::uint32_t kInfinity = 0x7f80'0000U;  // binary32

/// Shifts right by `shift` (1 to 31), rounding the dropped bits to nearest, ties to even.
constexpr std::uint32_t shift_round_even(std::uint32_t value, unsigned shift) noexcept {
  std::uint32_t const kept = value >> shift;
  std::uint32_t const dropped = value & ((1U << shift) - 1U);
  std::uint32_t const half = 1U << (shift - 1U);
  return kept + ((dropped > half || (dropped == half && (kept & 1U) != 0)) ? 1U : 0U);
}

}  // namespace

std::string_view to_string(DataType type) noexcept {
  return is_valid(type) ? kNames[static_cast<std::size_t>(type)].name : std::string_view("invalid");
}

std::optional<DataType> parse_data_type(std::string_view name) noexcept {
  for (Name const& known : kNames) {
    if (known.name == name) return known.type;
  }
  return std::nullopt;
}

float to_float(Half value) noexcept {
  std::uint32_t const sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16U;
  std::uint32_t const exponent = (value.bits >> 10U) & 0x1fU;
  std::uint32_t const mantissa = value.bits & 0x3ffU;
  if (exponent == 0) {  // zero and subnormals: mantissa · 2^-24, exact in float
    float const magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  if (exponent == 0x1fU) return std::bit_cast<float>(sign | kInfinity | (mantissa << 13U));
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
}

float to_float(BFloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

Half to_half(float value) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  auto const sign = static_cast<std::uint16_t>((bits & kSignMask) >> 16U);
  std::uint32_t const magnitude = bits & ~kSignMask;
  auto const signed_half = [sign](std::uint32_t half) { return Half{static_cast<std::uint16_t>(sign | half)}; };

  if (magnitude > kInfinity) return signed_half(0x7e00U | ((magnitude >> 13U) & 0x3ffU));  // quiet, payload kept
  if (magnitude >= 0x4780'0000U) return signed_half(0x7c00U);                              // 65536 and up
  if (magnitude >= 0x3880'0000U) {  // normal: rounding may carry into the exponent, up to infinity, as it should
    return signed_half(shift_round_even(magnitude - (112U << 23U), 13U));
  }
  std::uint32_t const exponent = magnitude >> 23U;
  if (exponent < 102U) return signed_half(0);  // below half of the smallest subnormal
  std::uint32_t const mantissa = (magnitude & 0x007f'ffffU) | 0x0080'0000U;
  return signed_half(shift_round_even(mantissa, 126U - exponent));
}

BFloat16 to_bfloat16(float value) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~kSignMask) > kInfinity) return {static_cast<std::uint16_t>((bits >> 16U) | 0x40U)};  // quiet NaN
  return {static_cast<std::uint16_t>(shift_round_even(bits, 16U))};
}

}  // namespace weft
