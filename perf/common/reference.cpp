#include "common/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/pattern.hpp"

namespace weft::perf {
namespace {

/// Rounding of one average, relative.
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

/// Results that only a single rank can give differently from what went in.
double finished(ReduceOp op, DataType dtype, double value, int ranks) {
  if (dtype == DataType::boolean) return value != 0 ? 1 : 0;
  if (op == ReduceOp::avg) value /= ranks;
  if (op == ReduceOp::land || op == ReduceOp::lor || op == ReduceOp::lxor) return value != 0 ? 1 : 0;
  return rounds(dtype) ? value : std::trunc(value);
}

/// Whole numbers up to this one are all exact.
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

constexpr std::size_t kPeriod = 16;  // of the boolean pattern; a multiple of every other but the ranks'

}  // namespace

Reference::Reference(DataType dtype, ReduceOp op, int ranks, std::size_t repetition)
    : dtype_(dtype),
      op_(op),
      ranks_(ranks),
      repetition_(repetition),
      values_(adds(op) ? std::clamp<std::size_t>(
                             most_exact(dtype) / static_cast<std::size_t>(ranks) / most_scale(op) + 1, 1, 8)
                       : 8) {
  reduced_.resize(kPeriod * values_ * static_cast<std::size_t>(ranks));
  for (std::size_t index = 0; index < reduced_.size(); ++index) {
    auto const scaled = [&](int rank) {
      return contribution(rank, index) * (op == ReduceOp::premul_sum ? mulsum_scale(rank) : 1);
    };
    double value = scaled(0);
    for (int rank = 1; rank < ranks; ++rank) value = combine(op, value, scaled(rank));
    reduced_[index] = finished(op, dtype, value, ranks);
  }
}

double Reference::contribution(int rank, std::size_t index) const noexcept {
  auto const r = static_cast<std::size_t>(rank);
  auto const ranks = static_cast<std::size_t>(ranks_);
  auto const at = index + repetition_;
  if (dtype_ == DataType::boolean) return static_cast<double>((at >> (r % 4)) & 1U);
  // One factor of two per element, from a rank that changes with it: no product overflows and none hides a missing
  // rank.
  if (op_ == ReduceOp::prod) return at % ranks == r ? 2 : 1;
  // More ranks than the type can count: as many ones as it can.
  if (values_ < 2) return (at + r) % ranks < most_exact(dtype_) / most_scale(op_) ? 1 : 0;
  return static_cast<double>((5 * at + 3 * r) % values_);
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
