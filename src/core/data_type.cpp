#include "weft/data_type.hpp"

#include <array>
#include <bit>

namespace weft {
namespace {

struct Name {
  std::string_view name;
  DataType type;
};

// The first of each type is what to_string() says, in enum order; then what nccl-tests and PyTorch call them.
constexpr std::array kNames{
    Name{"i8", DataType::i8},
    Name{"u8", DataType::u8},
    Name{"i32", DataType::i32},
    Name{"u32", DataType::u32},
    Name{"i64", DataType::i64},
    Name{"u64", DataType::u64},
    Name{"f16", DataType::f16},
    Name{"bf16", DataType::bf16},
    Name{"f32", DataType::f32},
    Name{"f64", DataType::f64},
    Name{"f8e4m3", DataType::f8e4m3},
    Name{"f8e5m2", DataType::f8e5m2},
    Name{"c64", DataType::c64},
    Name{"c128", DataType::c128},
    Name{"bool", DataType::boolean},
    Name{"i16", DataType::i16},
    Name{"u16", DataType::u16},
    Name{"int8", DataType::i8},
    Name{"char", DataType::i8},
    Name{"uint8", DataType::u8},
    Name{"byte", DataType::u8},
    Name{"int16", DataType::i16},
    Name{"short", DataType::i16},
    Name{"uint16", DataType::u16},
    Name{"int32", DataType::i32},
    Name{"int", DataType::i32},
    Name{"uint32", DataType::u32},
    Name{"int64", DataType::i64},
    Name{"long", DataType::i64},
    Name{"uint64", DataType::u64},
    Name{"half", DataType::f16},
    Name{"float16", DataType::f16},
    Name{"bfloat16", DataType::bf16},
    Name{"float", DataType::f32},
    Name{"float32", DataType::f32},
    Name{"double", DataType::f64},
    Name{"float64", DataType::f64},
    Name{"fp8_e4m3", DataType::f8e4m3},
    Name{"f8_e4m3", DataType::f8e4m3},
    Name{"float8_e4m3", DataType::f8e4m3},
    Name{"float8_e4m3fn", DataType::f8e4m3},
    Name{"fp8_e5m2", DataType::f8e5m2},
    Name{"f8_e5m2", DataType::f8e5m2},
    Name{"float8_e5m2", DataType::f8e5m2},
    Name{"complex64", DataType::c64},
    Name{"cfloat", DataType::c64},
    Name{"complex128", DataType::c128},
    Name{"cdouble", DataType::c128},
    Name{"boolean", DataType::boolean},
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

/// The layout of a float of at most 16 bits.
struct Layout {
  unsigned exponent_bits;
  unsigned mantissa_bits;
  bool has_infinity;  ///< else its exponent's largest value is an ordinary one, and all ones is NaN

  [[nodiscard]] constexpr unsigned bias() const noexcept { return (1U << (exponent_bits - 1U)) - 1U; }
  [[nodiscard]] constexpr std::uint32_t sign() const noexcept { return 1U << (exponent_bits + mantissa_bits); }
  [[nodiscard]] constexpr std::uint32_t nan() const noexcept { return sign() - 1U; }
  /// What overflows become.
  [[nodiscard]] constexpr std::uint32_t beyond() const noexcept {
    return has_infinity ? nan() >> mantissa_bits << mantissa_bits : nan();
  }
  [[nodiscard]] constexpr bool is_nan(std::uint32_t magnitude) const noexcept {
    return has_infinity ? magnitude > beyond() : magnitude == nan();
  }
};

constexpr Layout kHalf{5, 10, true};
constexpr Layout kE4M3{4, 3, false};
constexpr Layout kE5M2{5, 2, true};

float widen(std::uint32_t bits, Layout const& layout) noexcept {
  std::uint32_t const sign = (bits & layout.sign()) != 0 ? kSignMask : 0U;
  std::uint32_t const magnitude = bits & (layout.sign() - 1U);
  std::uint32_t const mantissa = magnitude << (23U - layout.mantissa_bits);
  if (layout.is_nan(magnitude)) return std::bit_cast<float>(sign | kInfinity | 0x40'0000U | (mantissa & 0x7f'ffffU));
  if (layout.has_infinity && magnitude == layout.beyond()) return std::bit_cast<float>(sign | kInfinity);
  if (magnitude >> layout.mantissa_bits == 0) {  // zero and subnormals: multiples of the smallest one, exact in float
    auto const unit = std::bit_cast<float>((128U - layout.bias() - layout.mantissa_bits) << 23U);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * unit));
  }
  return std::bit_cast<float>(sign | (mantissa + ((127U - layout.bias()) << 23U)));
}

std::uint32_t narrow(float value, Layout const& layout) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  std::uint32_t const sign = (bits & kSignMask) != 0 ? layout.sign() : 0U;
  std::uint32_t const magnitude = bits & ~kSignMask;
  unsigned const dropped = 23U - layout.mantissa_bits;
  std::uint32_t const smallest_normal = (128U - layout.bias()) << 23U;

  if (magnitude > kInfinity) {  // quiet, and as much of the payload as fits
    std::uint32_t const quiet = 1U << (layout.mantissa_bits - 1U);
    std::uint32_t const payload = (magnitude >> dropped) & (2U * quiet - 1U);
    return sign | (layout.has_infinity ? layout.beyond() | quiet | payload : layout.nan());
  }
  if (magnitude >= smallest_normal) {  // rounding may carry into the exponent, up to what overflows become
    std::uint32_t const rounded =
        shift_round_even(magnitude, dropped) - ((127U - layout.bias()) << layout.mantissa_bits);
    return sign | (rounded < layout.beyond() ? rounded : layout.beyond());
  }
  std::uint32_t const exponent = magnitude >> 23U;
  unsigned const shift = 151U - layout.bias() - layout.mantissa_bits - exponent;
  if (shift > 24U) return sign;  // below half of the smallest subnormal
  return sign | shift_round_even((magnitude & 0x007f'ffffU) | 0x0080'0000U, shift);
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
  return widen(value.bits, kHalf);
}

float to_float(Float8E4M3 value) noexcept {
  return widen(value.bits, kE4M3);
}

float to_float(Float8E5M2 value) noexcept {
  return widen(value.bits, kE5M2);
}

float to_float(BFloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

Half to_half(float value) noexcept {
  return {static_cast<std::uint16_t>(narrow(value, kHalf))};
}

Float8E4M3 to_float8_e4m3(float value) noexcept {
  return {static_cast<std::uint8_t>(narrow(value, kE4M3))};
}

Float8E5M2 to_float8_e5m2(float value) noexcept {
  return {static_cast<std::uint8_t>(narrow(value, kE5M2))};
}

BFloat16 to_bfloat16(float value) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~kSignMask) > kInfinity) return {static_cast<std::uint16_t>((bits >> 16U) | 0x40U)};  // quiet NaN
  return {static_cast<std::uint16_t>(shift_round_even(bits, 16U))};
}

}  // namespace weft
