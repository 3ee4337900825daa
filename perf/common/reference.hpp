#pragma once

#include <cstddef>
#include <vector>

#include "weft/buffer.hpp"
#include "weft/reduce_op.hpp"

namespace weft::perf {

/// What rank `rank` multiplies its contribution by in a mulsum.
[[nodiscard]] constexpr double mulsum_scale(int rank) noexcept {
  return 1 + rank % 2;
}

/// What every rank contributes when results are checked, and what must come out: computed without the library, in f64,
/// from whole numbers small enough that the data type holds every partial result exactly.
class Reference {
 public:
  /// `repetition` shifts the inputs, so that repeated checks see other values.
  Reference(DataType dtype, ReduceOp op, int ranks, std::size_t repetition = 0);

  /// Element `index` of rank `rank`'s input.
  [[nodiscard]] double contribution(int rank, std::size_t index) const noexcept;
  /// `op` over all ranks' element `index`.
  [[nodiscard]] double reduced(std::size_t index) const noexcept { return reduced_[index % reduced_.size()]; }

  /// Writes elements first, first + 1, … of rank `rank`'s input.
  void fill(BufferView buffer, int rank) const;
  /// Whether `found` is `expected` as `dtype` can tell: exactly, but for an average that has to be rounded.
  [[nodiscard]] bool agrees(double expected, double found) const noexcept;

  [[nodiscard]] DataType dtype() const noexcept { return dtype_; }

 private:
  DataType dtype_;
  ReduceOp op_;
  int ranks_;
  std::size_t repetition_;
  std::size_t values_;           // contributions to sums are 0 … values_ - 1
  std::vector<double> reduced_;  // one period of results
};

}  // namespace weft::perf
