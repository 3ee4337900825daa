#include "collectives/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "collectives/cases/element_types.hpp"

namespace weft::test {
namespace {

template <typename T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, Float8E4M3>) {
    return to_float8_e4m3(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, Float8E5M2>) {
    return to_float8_e5m2(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, Boolean>) {
    return {static_cast<std::uint8_t>(value != 0)};
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
double as_double(T value) {
  if constexpr (std::is_same_v<T, Boolean>) {
    return value.byte;
  } else if constexpr (std::is_class_v<T> && sizeof(T) <= 2) {
    return to_float(value);
  } else if constexpr (std::is_class_v<T>) {
    return value.imag() == 0 ? static_cast<double>(value.real()) : std::numeric_limits<double>::quiet_NaN();
  } else {
    return static_cast<double>(value);
  }
}

double combine(double a, double b, ReduceOp op) {
  auto const bits = [](double value) { return static_cast<std::int64_t>(value); };
  switch (op) {
    case ReduceOp::land: return a != 0 && b != 0 ? 1 : 0;
    case ReduceOp::lor: return a != 0 || b != 0 ? 1 : 0;
    case ReduceOp::lxor: return (a != 0) != (b != 0) ? 1 : 0;
    case ReduceOp::band: return static_cast<double>(bits(a) & bits(b));
    case ReduceOp::bor: return static_cast<double>(bits(a) | bits(b));
    case ReduceOp::bxor: return static_cast<double>(bits(a) ^ bits(b));
    case ReduceOp::prod: return a * b;
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
    default: return a + b;
  }
}

}  // namespace

std::vector<double> make_values(std::size_t count, DataType dtype, ReduceOp op, int rank, std::uint64_t seed) {
  // Products of up to 16 ranks stay within an i8 with factors of magnitude 1 and a rare 2 from rank 0.
  int const high = dtype == DataType::boolean ? 1 : (op == ReduceOp::prod ? (rank == 0 ? 2 : 1) : 7);
  int const low = is_signed(dtype) ? -high : 0;
  auto const choices = static_cast<std::uint64_t>(high - low + 1);
  std::vector<double> values(count);
  auto state = seed * 1000003 + static_cast<std::uint64_t>(rank) * 7919 + 1;
  for (auto& value : values) {  // Knuth's MMIX generator: sanitized runs make millions of these
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = low + static_cast<int>((state >> 33U) % choices);
  }
  return values;
}

std::vector<double> reduce_values(std::vector<std::vector<double>> const& contributions, DataType dtype, ReduceOp op) {
  auto result = contributions.front();
  if (op == ReduceOp::land || op == ReduceOp::lor || op == ReduceOp::lxor) {
    for (auto& value : result) value = value != 0 ? 1 : 0;
  }
  for (std::size_t rank = 1; rank < contributions.size(); ++rank) {
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = combine(result[i], contributions[rank][i], op);
  }
  if (dtype == DataType::boolean) {
    for (auto& value : result) value = value != 0 ? 1 : 0;
  }
  if (op == ReduceOp::avg) {
    for (auto& value : result) {
      value /= static_cast<double>(contributions.size());
      if (is_integer(dtype)) value = std::trunc(value);
    }
  }
  return result;
}

void store_values(std::vector<double> const& values, BufferView view) {
  with_element(view.dtype, [&](auto zero) {
    auto* out = static_cast<decltype(zero)*>(view.data);
    for (std::size_t i = 0; i < values.size(); ++i) out[i] = from_double<decltype(zero)>(values[i]);
  });
}

std::vector<double> load_values(ConstBufferView view) {
  std::vector<double> values(view.count);
  with_element(view.dtype, [&](auto zero) {
    auto const* in = static_cast<decltype(zero) const*>(view.data);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = as_double(in[i]);
  });
  return values;
}

}  // namespace weft::test
