#include "common/reference.hpp"

#include <algorithm>
#include <cmath>

#include "common/pattern.hpp"

namespace weft::perf {
namespace {

bool is_floating(DataType dtype) {
  return dtype >= DataType::f16;
}

double tolerance(DataType dtype) {
  switch (dtype) {
    case DataType::f16: return 1.0 / 1024;
    case DataType::bf16: return 1.0 / 128;
    case DataType::f32: return 2.4e-7;
    default: return 4.5e-16;
  }
}

double combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: return a + b;
    case ReduceOp::prod: return a * b;
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
  }
  return a;
}

}  // namespace

Reference::Reference(DataType dtype, ReduceOp op, int ranks) : dtype_(dtype), op_(op), ranks_(ranks) {
  reduced_.resize(8 * static_cast<std::size_t>(ranks));
  for (std::size_t index = 0; index < reduced_.size(); ++index) {
    double value = contribution(0, index);
    for (int rank = 1; rank < ranks; ++rank) value = combine(op, value, contribution(rank, index));
    if (op == ReduceOp::avg) value /= ranks;
    reduced_[index] = is_floating(dtype) ? value : std::trunc(value);
  }
}

double Reference::contribution(int rank, std::size_t index) const noexcept {
  auto const r = static_cast<std::size_t>(rank);
  // One factor of two per element, from a rank that changes with it: no product overflows and none hides a missing
  // rank.
  if (op_ == ReduceOp::prod) return index % static_cast<std::size_t>(ranks_) == r ? 2 : 1;
  return static_cast<double>((5 * index + 3 * r) % 8);  // at most 7 · 16 ranks: within i8
}

void Reference::fill(BufferView buffer, int rank) const {
  auto* const target = static_cast<std::byte*>(buffer.data);
  auto const size = size_of(dtype_);
  for (std::size_t i = 0; i < buffer.count; ++i) encode(dtype_, contribution(rank, i), target + i * size);
}

bool Reference::agrees(double expected, double found) const noexcept {
  if (op_ == ReduceOp::avg && is_floating(dtype_)) {
    return std::abs(found - expected) <= tolerance(dtype_) * std::abs(expected);
  }
  return found == expected;
}

}  // namespace weft::perf
