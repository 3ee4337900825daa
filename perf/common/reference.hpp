#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/buffer.hpp"
#include "weft/reduce_op.hpp"

namespace weft::perf {

/// The scale of rank `rank`'s contribution in a mulsum.
[[nodiscard]] constexpr double mulsum_scale(int rank) noexcept {
  return 1 + rank % 2;
}

/// A mix of `x`: every bit depends on all bits of `x`.
[[nodiscard]] constexpr std::uint64_t scrambled(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// What every rank contributes when results are checked, and the expected result. It is computed without the library,
/// in f64, from whole numbers small enough that the data type holds every partial result exactly. The numbers are drawn
/// by index and rank, without a period, so that data from a wrong place or rank is noticed.
class Reference {
 public:
  /// Each `repetition` has other inputs, so that repeated checks see other values.
  Reference(DataType dtype, ReduceOp op, int ranks, std::size_t repetition = 0);

  /// Element `index` of rank `rank`'s input.
  [[nodiscard]] double contribution(int rank, std::size_t index) const noexcept {
    return contributions_[static_cast<std::size_t>(rank) * kRows + row_of(index)];
  }
  /// `op` over all ranks' element `index`.
  [[nodiscard]] double reduced(std::size_t index) const noexcept { return reduced_[row_of(index)]; }

  /// Writes elements first, first + 1, … of rank `rank`'s input.
  void fill(BufferView buffer, int rank) const;
  /// Whether `found` equals `expected` in `dtype`: exactly, except for averages, which have to be rounded.
  [[nodiscard]] bool agrees(double expected, double found) const noexcept;

  [[nodiscard]] DataType dtype() const noexcept { return dtype_; }

 private:
  /// Contributions and results are drawn once for each row, and every element uses one of the rows. So the tables fit
  /// the nearest cache, and an element costs the same with any number of ranks.
  static constexpr std::size_t kRows = 2048;
  static constexpr std::uint64_t kFarApart = 0x9e3779b97f4a7c15U;  // between two repetitions' indices

  [[nodiscard]] std::size_t row_of(std::size_t index) const noexcept { return scrambled(first_ + index) % kRows; }
  [[nodiscard]] std::size_t drawn_for(std::size_t rank, std::size_t row) const;

  DataType dtype_;
  ReduceOp op_;
  std::size_t ranks_;
  std::uint64_t first_;
  std::size_t most_;    // the largest count that the type can hold
  std::size_t values_;  // contributions to sums are 0 … values_ - 1
  std::vector<std::uint8_t> contributions_;
  std::vector<double> reduced_;
};

}  // namespace weft::perf
