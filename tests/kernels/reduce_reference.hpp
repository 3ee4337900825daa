#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft/data_type.hpp"
#include "weft/reduce_op.hpp"

namespace weft::test {

/// A binary floating-point format, converted through double arithmetic only: independent of the library's bit tricks.
struct Format {
  int exponent_bits;
  int fraction_bits;
  bool has_infinity;  // else the largest exponent is an ordinary one, and all ones is NaN

  [[nodiscard]] int sign_bit() const { return 1 << (exponent_bits + fraction_bits); }
  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  /// The pattern of overflows: infinity, or NaN.
  [[nodiscard]] int beyond() const { return has_infinity ? sign_bit() - (1 << fraction_bits) : sign_bit() - 1; }

  [[nodiscard]] double decode(int bits) const {
    int const magnitude = bits & (sign_bit() - 1);
    int const exponent = magnitude >> fraction_bits;
    int const fraction = magnitude & ((1 << fraction_bits) - 1);
    double const sign = (bits & sign_bit()) != 0 ? -1.0 : 1.0;
    if (has_infinity && magnitude == beyond()) return sign * std::numeric_limits<double>::infinity();
    if (magnitude >= beyond()) return std::numeric_limits<double>::quiet_NaN();
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias() - fraction_bits);
    return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias() - fraction_bits);
  }

  [[nodiscard]] int encode(double value) const {
    int const sign = std::signbit(value) ? sign_bit() : 0;
    if (std::isnan(value)) return sign | (sign_bit() - 1);
    double const magnitude = std::fabs(value);
    if (magnitude == 0) return sign;
    if (std::isinf(value)) return sign | beyond();
    int const exponent = std::max(std::ilogb(magnitude), 1 - bias());
    // nearbyint rounds ties to even; a fraction that rounds up to the next power of two carries into the exponent by
    // itself.
    auto const units = static_cast<long>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
    long const bits = ((static_cast<long>(exponent) + bias() - 1) << fraction_bits) + units;
    return sign | static_cast<int>(std::min<long>(bits, beyond()));
  }
};

/// A byte of DataType::boolean, whatever it holds.
struct Boolean {
  std::uint8_t byte = 0;
};

template <typename T>
inline constexpr Format format_of{};
template <>
inline constexpr Format format_of<Half>{5, 10, true};
template <>
inline constexpr Format format_of<BFloat16>{8, 7, true};
template <>
inline constexpr Format format_of<Float8E4M3>{4, 3, false};
template <>
inline constexpr Format format_of<Float8E5M2>{5, 2, true};

template <typename T>
inline constexpr bool is_narrow = format_of<T>.exponent_bits != 0;
template <typename T>
inline constexpr bool is_complex_number =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

template <typename T>
constexpr DataType dtype_of() {
  if constexpr (std::is_same_v<T, Boolean>) {
    return DataType::boolean;
  } else {
    return data_type_of<T>;
  }
}

template <typename T>
struct AccumulatorOf {
  using Type = std::conditional_t<is_narrow<T>, float, T>;
};
template <>
struct AccumulatorOf<Boolean> {
  using Type = std::uint8_t;
};
/// What a type accumulates in.
template <typename T>
using Accumulator = typename AccumulatorOf<T>::Type;

template <typename T>
Accumulator<T> widen(T value) {
  if constexpr (is_narrow<T>) {
    return static_cast<float>(format_of<T>.decode(value.bits));
  } else if constexpr (std::is_same_v<T, Boolean>) {
    return value.byte;
  } else {
    return value;
  }
}

template <typename T>
T narrow(Accumulator<T> value) {
  if constexpr (is_narrow<T>) {
    T result;
    result.bits = static_cast<decltype(result.bits)>(format_of<T>.encode(value));
    return result;
  } else if constexpr (std::is_same_v<T, Boolean>) {
    return {value};
  } else {
    return value;
  }
}

// 128 bits hold every product and sum of integers exactly; the conversion back wraps.
__extension__ using Wide = __int128;
__extension__ using WideUnsigned = unsigned __int128;

template <typename A>
A multiply(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<WideUnsigned>(static_cast<Wide>(a)) *
                          static_cast<WideUnsigned>(static_cast<Wide>(b)));
  } else if constexpr (is_complex_number<A>) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  } else {
    return a * b;
  }
}

template <typename A>
A add(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<Wide>(a) + b);
  } else {
    return a + b;
  }
}

/// One contribution as it enters the reduction.
template <typename A>
A prepared(A value, ReduceOp op, double scale) {
  switch (op) {
    case ReduceOp::premul_sum:
      if constexpr (std::is_integral_v<A>) {
        return multiply(value, static_cast<A>(static_cast<Wide>(scale)));
      } else if constexpr (is_complex_number<A>) {
        auto const by = static_cast<typename A::value_type>(scale);
        return {value.real() * by, value.imag() * by};
      } else {
        return value * static_cast<A>(scale);
      }
    case ReduceOp::land:
    case ReduceOp::lor:
    case ReduceOp::lxor: return value != A{} ? A{1} : A{};
    default: return value;
  }
}

template <typename A>
A combine(A a, A b, ReduceOp op) {
  if (op == ReduceOp::prod) return multiply(a, b);
  if constexpr (!is_complex_number<A>) {
    switch (op) {
      case ReduceOp::min:
        if constexpr (std::is_floating_point_v<A>) return std::isnan(a) ? a : (std::isnan(b) || b < a ? b : a);
        return b < a ? b : a;
      case ReduceOp::max:
        if constexpr (std::is_floating_point_v<A>) return std::isnan(a) ? a : (std::isnan(b) || b > a ? b : a);
        return b > a ? b : a;
      case ReduceOp::land: return a != 0 && b != 0 ? A{1} : A{};
      case ReduceOp::lor: return a != 0 || b != 0 ? A{1} : A{};
      case ReduceOp::lxor: return (a != 0) != (b != 0) ? A{1} : A{};
      default: break;
    }
  }
  if constexpr (std::is_integral_v<A>) {
    if (op == ReduceOp::band) return static_cast<A>(a & b);
    if (op == ReduceOp::bor) return static_cast<A>(a | b);
    if (op == ReduceOp::bxor) return static_cast<A>(a ^ b);
  }
  return add(a, b);
}

/// The operator of two truth values that each operator is.
inline ReduceOp truth_operator(ReduceOp op) {
  for (auto const conjunction : {ReduceOp::prod, ReduceOp::min, ReduceOp::land, ReduceOp::band})
    if (op == conjunction) return ReduceOp::land;
  return op == ReduceOp::lxor || op == ReduceOp::bxor ? ReduceOp::lxor : ReduceOp::lor;
}

/// One element of a reduction, from the definition.
template <typename T>
T reduce_reference(std::vector<T> const& contributions, ReduceOp op, double const* scales = nullptr) {
  using A = Accumulator<T>;
  if constexpr (std::is_same_v<T, Boolean>) op = truth_operator(op);
  auto const contribution = [&](std::size_t r) {
    return prepared<A>(widen(contributions[r]), op, scales != nullptr ? scales[r] : 1.0);
  };
  A total = contribution(0);
  for (std::size_t r = 1; r < contributions.size(); ++r) total = combine<A>(total, contribution(r), op);
  if (op == ReduceOp::avg && contributions.size() > 1) {
    if constexpr (is_complex_number<A>) {
      auto const by = static_cast<typename A::value_type>(contributions.size());
      total = {total.real() / by, total.imag() / by};
    } else if constexpr (std::is_integral_v<A>) {  // whose type may not have the number of contributions
      if (std::cmp_greater_equal(contributions.size(), std::numeric_limits<A>::max())) {
        auto const quotient = static_cast<double>(total) / static_cast<double>(contributions.size());
        total = static_cast<A>(std::trunc(quotient));
      } else {
        total = static_cast<A>(total / static_cast<A>(contributions.size()));
      }
    } else {
      total = static_cast<A>(total / static_cast<A>(contributions.size()));
    }
  }
  return narrow<T>(total);
}

/// Equal bits, or both NaN: which NaN is not promised.
template <typename T>
bool same(T a, T b) {
  if constexpr (is_complex_number<T>) {
    return same(a.real(), b.real()) && same(a.imag(), b.imag());
  } else if constexpr (!std::is_integral_v<T>) {
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
    if (random() % 2 == 0) return narrow<T>(std::uniform_real_distribution<float>(-4, 4)(random));
    T value;
    value.bits = static_cast<decltype(value.bits)>(random());
    return value;
  } else if constexpr (is_complex_number<T>) {
    auto const real = random_element<typename T::value_type>(random);
    return {real, random_element<typename T::value_type>(random)};
  } else if constexpr (std::is_same_v<T, Boolean>) {
    constexpr std::uint8_t kBytes[] = {0, 0, 0, 1, 1, 2, 0x80, 0xff};
    return {kBytes[random() % std::size(kBytes)]};
  } else {
    using L = std::numeric_limits<T>;
    constexpr T kSpecial[] = {T{0},      -T{0},    L::infinity(), -L::infinity(), L::quiet_NaN(), L::denorm_min(),
                              -L::min(), L::max(), -L::max()};
    if (random() % 10 == 0) return kSpecial[random() % std::size(kSpecial)];
    return std::uniform_real_distribution<T>(-4, 4)(random);
  }
}

/// A value for `T` to be scaled by.
template <typename T>
double random_scale(std::mt19937_64& random) {
  if constexpr (std::is_unsigned_v<T>) {
    return static_cast<double>(random() % 100);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<double>(random() % 200) - 100;
  } else {
    return random() % 4 == 0 ? 1.0 / 3 : std::uniform_real_distribution<double>(-2, 2)(random);
  }
}

}  // namespace weft::test
