#include "collectives/cases/serial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "collectives/cases/element_types.hpp"

namespace weft::test {
namespace {

using Columns = std::vector<std::vector<std::byte>>;  // every rank's contribution

template <typename T>
T load(std::byte const* bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
std::string show(T value) {
  if constexpr (is_complex_number<T>) {
    return fmt::format("({}, {})", value.real(), value.imag());
  } else {
    return fmt::format("{}", widen(value));
  }
}

/// Relative error of one operation in the accumulating type, and of the result's type.
template <typename T>
double accumulating_epsilon() {
  return std::numeric_limits<float>::epsilon() * (sizeof(Accumulator<T>) == 4 ? 1 : 0x1p-29);
}
template <>
double accumulating_epsilon<std::complex<float>>() {
  return std::numeric_limits<float>::epsilon();
}

template <typename T>
double result_epsilon() {
  if constexpr (is_narrow<T>) {
    return std::ldexp(1.0, -format_of<T>.fraction_bits);
  } else {
    return accumulating_epsilon<T>();
  }
}

/// The largest value up to which a rounding is as small as its epsilon says, and the smallest step below.
template <typename T>
double largest() {
  if constexpr (is_narrow<T>) {
    return format_of<T>.decode(format_of<T>.beyond() - 1);
  } else {
    return result_epsilon<T>() > 1e-10 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  }
}
template <typename T>
double smallest() {
  if constexpr (is_narrow<T>) {
    return format_of<T>.decode(1);
  } else {
    return result_epsilon<T>() > 1e-10 ? std::numeric_limits<float>::denorm_min()
                                       : std::numeric_limits<double>::denorm_min();
  }
}

/// A reduction in double precision with a bound of what rounding may do to it elsewhere.
struct Estimate {
  std::complex<double> value;
  double error = 0;
};

template <typename T>
std::complex<double> as_number(T value) {
  if constexpr (is_complex_number<T>) {
    return {static_cast<double>(value.real()), static_cast<double>(value.imag())};
  } else {
    return {static_cast<double>(widen(value)), 0};
  }
}

template <typename T>
Estimate estimate(std::vector<T> const& column, ReduceOp op, std::vector<double> const& scales) {
  auto total = as_number(column[0]) * scales[0];
  double magnitude = std::abs(total);  // of the sum of all terms, or of the product
  for (std::size_t r = 1; r < column.size(); ++r) {
    auto const next = as_number(column[r]) * scales[r];
    if (op == ReduceOp::prod) {
      total *= next;
      magnitude *= std::abs(next);
    } else if (op == ReduceOp::min) {
      total = std::min(total.real(), next.real());
    } else if (op == ReduceOp::max) {
      total = std::max(total.real(), next.real());
    } else {
      total += next;
      magnitude += std::abs(next);
    }
  }
  if (op == ReduceOp::avg) {
    total /= static_cast<double>(column.size());
    magnitude /= static_cast<double>(column.size());
  }
  auto const steps = op == ReduceOp::prod ? 4.0 : 2.0;  // roundings of a step: products of complex numbers have more
  auto const rounding = steps * static_cast<double>(column.size()) * accumulating_epsilon<T>() * magnitude;
  return {total, rounding + result_epsilon<T>() * std::abs(total) + smallest<T>() * static_cast<double>(column.size())};
}

template <typename T>
inline constexpr bool is_float = !std::is_integral_v<T> && !std::is_same_v<T, Boolean>;

/// Whether nothing overflows, vanishes or is no number on the way, where an error bound would mean nothing.
template <typename T>
bool stays_in_range(std::vector<T> const& column, ReduceOp op, std::vector<double> const& scales) {
  bool const single = accumulating_epsilon<T>() > 1e-10;
  auto const most = single ? std::numeric_limits<float>::max() / 4 : std::numeric_limits<double>::max() / 4;
  auto const least = single ? std::numeric_limits<float>::min() * 16 : std::numeric_limits<double>::min() * 16;
  double magnitude = op == ReduceOp::prod ? 1 : 0;
  for (std::size_t r = 0; r < column.size(); ++r) {
    auto const term = std::abs(as_number(column[r]) * scales[r]);
    magnitude = op != ReduceOp::prod ? magnitude + term : term == 0 ? 1 : magnitude * term;
    if (!(magnitude < most) || (op == ReduceOp::prod && magnitude < least)) return false;
  }
  return true;
}

/// Whether `got` is as near to the double-precision result as it must be; true where the bound means nothing.
template <typename T>
bool is_near(T got, std::vector<T> const& column, ReduceOp op, std::vector<double> const& scales) {
  if constexpr (!is_float<T>) {
    return true;
  } else {
    if (op >= ReduceOp::land && op <= ReduceOp::bxor) return true;
    auto const [value, error] = estimate(column, op, scales);
    if (!stays_in_range(column, op, scales) || !(std::abs(value) < largest<T>() / 2)) return true;  // the bits say
    return std::abs(as_number(got) - value) <= error;
  }
}

template <typename T>
std::vector<T> column_at(Columns const& contributions, std::size_t index) {
  std::vector<T> column;
  column.reserve(contributions.size());
  for (auto const& bytes : contributions) column.push_back(load<T>(bytes.data(), index));
  return column;
}

template <typename T>
std::string tell(std::size_t index, T got, std::vector<T> const& column, std::string const& wanted) {
  std::string given;
  for (auto const value : column) given += (given.empty() ? "" : " ") + show(value);
  return fmt::format("element {} is {} instead of {}, from {}", index, show(got), wanted, given);
}

template <typename T>
std::optional<std::string> compare(Case const& one, Columns const& contributions, std::size_t count,
                                   std::byte const* got, bool bits) {
  auto const scales = one.scales();
  auto const first_scale = scales.data();
  for (std::size_t i = 0; i < count; ++i) {
    auto const value = load<T>(got, i);
    auto const column = column_at<T>(contributions, i);
    if (bits) {
      auto const wanted = reduce_reference(column, one.op, first_scale);
      if (!same(value, wanted)) return tell(i, value, column, show(wanted));
    } else if (!is_float<T> && !same(value, reduce_reference(column, one.op, first_scale))) {
      return tell(i, value, column, show(reduce_reference(column, one.op, first_scale)));
    }
    if (!is_near(value, column, one.op, scales)) return tell(i, value, column, "something near to the exact result");
  }
  return std::nullopt;
}

std::optional<std::string> compare_bytes(std::vector<std::byte> const& wanted, std::byte const* got) {
  if (wanted.empty() || std::memcmp(wanted.data(), got, wanted.size()) == 0) return std::nullopt;
  auto const at = std::mismatch(wanted.begin(), wanted.end(), got).first - wanted.begin();
  return fmt::format("byte {} of {} is {:#x} instead of {:#x}", at, wanted.size(), static_cast<int>(got[at]),
                     static_cast<int>(wanted[static_cast<std::size_t>(at)]));
}

std::optional<std::string> examine(Case const& one, Contributions const& contributions, Piece const& piece,
                                   std::byte const* got, bool bits) {
  if (!reduces(one.kind)) return compare_bytes(contributions.read(piece.first, piece.from, piece.count), got);
  Columns columns;
  for (int r = piece.first; r < piece.last; ++r) columns.push_back(contributions.read(r, piece.from, piece.count));
  if (one.op == ReduceOp::user) {
    auto total = columns.front();
    for (std::size_t r = 1; r < columns.size(); ++r) compose_maps(total.data(), columns[r].data(), total.size());
    return compare_bytes(total, got);
  }
  return with_element(one.dtype,
                      [&](auto zero) { return compare<decltype(zero)>(one, columns, piece.count, got, bits); });
}

}  // namespace

std::optional<std::string> find_difference(Case const& one, Contributions const& contributions, Piece const& piece,
                                           std::byte const* got) {
  return examine(one, contributions, piece, got, true);
}

std::optional<std::string> find_deviation(Case const& one, Contributions const& contributions, Piece const& piece,
                                          std::byte const* got) {
  return examine(one, contributions, piece, got, false);
}

}  // namespace weft::test
