#include "common/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/pattern.hpp"

namespace weft::perf {
namespace {

/// The relative rounding error of an average.
double tolerance(DataType dtype) {
  switch (dtype) {
    case DataType::f8e4m3: return 1.0 / 8;
    case DataType::f8e5m2: return 1.0 / 4;
    case DataType::f16: return 1.0 / 1024;
    case DataType::bf16: return 1.0 / 128;
    case DataType::f32:
    case DataType::c64: return 2.4e-7;
    default: return 4.5e-16;
  }
}

bool rounds(DataType dtype) {
  return is_floating_point(dtype) || is_complex(dtype);
}

std::uint64_t whole(double value) {
  return static_cast<std::uint64_t>(value);
}

double combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::prod: return a * b;
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
    case ReduceOp::land: return a != 0 && b != 0 ? 1 : 0;
    case ReduceOp::lor: return a != 0 || b != 0 ? 1 : 0;
    case ReduceOp::lxor: return (a != 0) != (b != 0) ? 1 : 0;
    case ReduceOp::band: return static_cast<double>(whole(a) & whole(b));
    case ReduceOp::bor: return static_cast<double>(whole(a) | whole(b));
    case ReduceOp::bxor: return static_cast<double>(whole(a) ^ whole(b));
    default: return a + b;
  }
}

/// The result for a combined value: with a single rank, too, it may differ from the input.
double finished(ReduceOp op, DataType dtype, double value, int ranks) {
  if (dtype == DataType::boolean) return value != 0 ? 1 : 0;
  if (op == ReduceOp::avg) value /= ranks;
  if (op == ReduceOp::land || op == ReduceOp::lor || op == ReduceOp::lxor) return value != 0 ? 1 : 0;
  return rounds(dtype) ? value : std::trunc(value);
}

/// The type holds all whole numbers up to this one exactly.
std::size_t most_exact(DataType dtype) {
  switch (dtype) {
    case DataType::f8e5m2: return 8;
    case DataType::f8e4m3: return 16;
    case DataType::i8: return 127;
    case DataType::u8: return 255;
    case DataType::bf16: return 256;
    case DataType::f16: return 2048;
    default: return std::size_t{1} << 14;
  }
}

bool adds(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum;
}

std::size_t most_scale(ReduceOp op) {
  return op == ReduceOp::premul_sum ? 2 : 1;
}

/// Reductions whose result stops changing after a few values, or is truncated to the same: with independent values on
/// many ranks, all results would be equal.
bool absorbs(DataType dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::land:
    case ReduceOp::lor:
    case ReduceOp::band:
    case ReduceOp::bor: return true;
    case ReduceOp::lxor:
    case ReduceOp::bxor: return false;
    case ReduceOp::avg: return !rounds(dtype);
    default: return dtype == DataType::boolean;
  }
}

// Keys of what is drawn for a row besides the ranks' own values.
constexpr std::uint64_t kOthers = 1ULL << 32U;
constexpr std::uint64_t kWho = 2ULL << 32U;
constexpr std::uint64_t kHowMany = 3ULL << 32U;
/// Chosen so that the first four elements of the first four ranks all differ: the smallest messages have no more.
constexpr std::uint64_t kSeed = 0x95a0000095aU;

/// A number from 0 to bound - 1.
std::size_t drawn(std::size_t row, std::uint64_t what, std::size_t bound) {
  auto const bits = scrambled((what << 11U) + row + kSeed) >> 32U;
  return static_cast<std::size_t>((bits * bound) >> 32U);
}

}  // namespace

Reference::Reference(DataType dtype, ReduceOp op, int ranks, std::size_t repetition)
    : dtype_(dtype),
      op_(op),
      ranks_(static_cast<std::size_t>(ranks)),
      first_(repetition * kFarApart),
      most_(most_exact(dtype) / most_scale(op)),
      values_(dtype == DataType::boolean ? 2
              : adds(op)                 ? std::clamp<std::size_t>(most_ / ranks_ + 1, 1, 8)
                                         : 8),
      contributions_(kRows * ranks_),
      reduced_(kRows) {
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    for (std::size_t row = 0; row < kRows; ++row) {
      contributions_[rank * kRows + row] = static_cast<std::uint8_t>(drawn_for(rank, row));
    }
  }
  for (std::size_t row = 0; row < kRows; ++row) {
    auto const scaled = [&](std::size_t rank) {
      double const value = contributions_[rank * kRows + row];
      return op == ReduceOp::premul_sum ? value * mulsum_scale(static_cast<int>(rank)) : value;
    };
    double value = scaled(0);
    for (std::size_t rank = 1; rank < ranks_; ++rank) value = combine(op, value, scaled(rank));
    reduced_[row] = finished(op, dtype, value, ranks);
  }
}

std::size_t Reference::drawn_for(std::size_t rank, std::size_t row) const {
  // In each row one rank may differ from all others, a different one each time, so that the result depends on it.
  if (absorbs(dtype_, op_)) return drawn(row, drawn(row, kWho, ranks_) == rank ? rank : kOthers, values_);
  // One to three factors of two, so that no product overflows and a missing rank always shows.
  if (op_ == ReduceOp::prod) {
    std::size_t value = 1;
    for (std::size_t i = 0; i <= drawn(row, kHowMany, 3); ++i) value <<= drawn(row, kWho + i, ranks_) == rank ? 1U : 0U;
    return value;
  }
  // If there are more ranks than the type can count, contribute at most as many ones as it can count.
  if (values_ < 2) return (rank + drawn(row, kWho, ranks_)) % ranks_ <= drawn(row, kHowMany, most_) ? 1 : 0;
  return drawn(row, rank, values_);
}

void Reference::fill(BufferView buffer, int rank) const {
  auto* const target = static_cast<std::byte*>(buffer.data);
  auto const size = size_of(dtype_);
  for (std::size_t i = 0; i < buffer.count; ++i) encode(dtype_, contribution(rank, i), target + i * size);
}

bool Reference::agrees(double expected, double found) const noexcept {
  if (op_ == ReduceOp::avg && rounds(dtype_)) {
    return std::abs(found - expected) <= tolerance(dtype_) * std::abs(expected);
  }
  return found == expected;
}

}  // namespace weft::perf
