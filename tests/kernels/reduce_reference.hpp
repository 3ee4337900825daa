#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "weft/data_type.hpp"
#include "weft/reduce_op.hpp"

namespace weft::test {

/// A binary floating-point format, converted through double arithmetic only: independent of the library's bit tricks.
struct Format {
  int fraction_bits;
  int bias;

  [[nodiscard]] double decode(std::uint16_t bits) const {
    int const exponent_mask = (1 << (15 - fraction_bits)) - 1;
    int const exponent = (bits >> fraction_bits) & exponent_mask;
    int const fraction = bits & ((1 << fraction_bits) - 1);
    double const sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == exponent_mask) {
      return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
    }
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
    return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
  }

  [[nodiscard]] std::uint16_t encode(double value) const {
    int const sign = std::signbit(value) ? 0x8000 : 0;
    int const infinity = ((1 << (15 - fraction_bits)) - 1) << fraction_bits;
    if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1);
    double const magnitude = std::fabs(value);
    if (magnitude == 0) return static_cast<std::uint16_t>(sign);
    if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
    int const exponent = std::max(std::ilogb(magnitude), 1 - bias);
    // nearbyint rounds ties to even; a fraction that rounds up to the next power of two carries into the exponent by
    // itself.
    auto const units = static_cast<long>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
    long const bits = ((static_cast<long>(exponent) + bias - 1) << fraction_bits) + units;
    return static_cast<std::uint16_t>(sign | std::min<long>(bits, infinity));
  }
};

inline constexpr Format kHalfFormat{10, 15};
inline constexpr Format kBFloat16Format{7, 127};

template <typename T>
inline constexpr bool is_narrow = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <typename T>
inline constexpr Format format_of = std::is_same_v<T, Half> ? kHalfFormat : kBFloat16Format;

/// What a type accumulates in.
template <typename T>
using Accumulator = std::conditional_t<is_narrow<T>, float, T>;

template <typename T>
Accumulator<T> widen(T value) {
  if constexpr (is_narrow<T>) {
    return static_cast<float>(format_of<T>.decode(value.bits));
  } else {
    return value;
  }
}

template <typename T>
T narrow(Accumulator<T> value) {
  if constexpr (is_narrow<T>) {
    return T{format_of<T>.encode(value)};
  } else {
    return value;
  }
}

template <typename A>
A combine(A a, A b, ReduceOp op) {
  if constexpr (std::is_integral_v<A>) {
    // 128 bits hold every product and sum exactly; the conversion back wraps.
    __extension__ using Wide = __int128;
    __extension__ using WideUnsigned = unsigned __int128;
    switch (op) {
      case ReduceOp::prod:
        return static_cast<A>(static_cast<WideUnsigned>(static_cast<Wide>(a)) *
                              static_cast<WideUnsigned>(static_cast<Wide>(b)));
      case ReduceOp::min: return b < a ? b : a;
      case ReduceOp::max: return b > a ? b : a;
      default: return static_cast<A>(static_cast<Wide>(a) + b);
    }
  } else {
    switch (op) {
      case ReduceOp::prod: return a * b;
      case ReduceOp::min: return std::isnan(a) ? a : (std::isnan(b) || b < a ? b : a);
      case ReduceOp::max: return std::isnan(a) ? a : (std::isnan(b) || b > a ? b : a);
      default: return a + b;
    }
  }
}

/// One element of a reduction, from the definition.
template <typename T>
T reduce_reference(std::vector<T> const& contributions, ReduceOp op) {
  using A = Accumulator<T>;
  A total = widen(contributions.at(0));
  for (std::size_t r = 1; r < contributions.size(); ++r) total = combine<A>(total, widen(contributions[r]), op);
  if (op == ReduceOp::avg && contributions.size() > 1)
    total = static_cast<A>(total / static_cast<A>(contributions.size()));
  return narrow<T>(total);
}

/// Equal bits, or both NaN: which NaN is not promised.
template <typename T>
bool same(T a, T b) {
  if constexpr (!std::is_integral_v<T>) {
    if (std::isnan(static_cast<double>(widen(a))) && std::isnan(static_cast<double>(widen(b)))) return true;
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Mostly everyday values, with every tenth a special one.
template <typename T>
T random_element(std::mt19937_64& random) {
  if constexpr (std::is_integral_v<T>) {
    return random() % 4 == 0 ? static_cast<T>(random() % 5) : static_cast<T>(random());
  } else if constexpr (is_narrow<T>) {
    return random() % 2 == 0 ? T{static_cast<std::uint16_t>(random())}
                             : narrow<T>(std::uniform_real_distribution<float>(-4, 4)(random));
  } else {
    using L = std::numeric_limits<T>;
    constexpr T kSpecial[] = {T{0},      -T{0},    L::infinity(), -L::infinity(), L::quiet_NaN(), L::denorm_min(),
                              -L::min(), L::max(), -L::max()};
    if (random() % 10 == 0) return kSpecial[random() % std::size(kSpecial)];
    return std::uniform_real_distribution<T>(-4, 4)(random);
  }
}

}  // namespace weft::test
