#pragma once

#include "kernels/cuda/model/matrix.hpp"

namespace weft::kernels::cuda {

// Sums over all rows, for gradients of weights and biases, in two launches: slabs of rows, then the slabs in their
// order. The sums' order depends on the matrix's size alone, so bits repeat.

inline constexpr std::uint32_t kSlabRows = 64;

/// How a launch divides a matrix.
struct ColumnGrid {
  std::uint32_t slabs, tiles;
  [[nodiscard]] unsigned blocks() const { return slabs * tiles; }
};

/// A slab's sums. `Source` has kOutputs and
///   template <int kLanes> visit(row, width, first column, Lanes<kLanes>* sums)
/// which adds its values of a few columns, and may write a matrix on the way: each element is visited once.
template <typename Source>
struct ColumnSumsBody {
  static constexpr unsigned kThreads = 128;
  static constexpr std::uint32_t kTile = 4 * kThreads;
  using Shared = Nothing;

  Source source;
  std::uint64_t rows = 0;
  std::uint32_t width = 0;
  float* parts = nullptr;  ///< slabs · kOutputs · width

  [[nodiscard]] static ColumnGrid grid(std::uint64_t rows, std::uint32_t width) {
    return {static_cast<std::uint32_t>((rows + kSlabRows - 1) / kSlabRows), (width + kTile - 1) / kTile};
  }

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    std::uint32_t const tiles = (width + kTile - 1) / kTile;
    std::uint32_t const slab = block.index() / tiles;
    std::uint32_t const first_column = block.index() % tiles * kTile;
    block.each_thread([&](unsigned t) {
      std::uint32_t const column = first_column + 4 * t;
      if (column + 4 <= width) return sum<4>(slab, column);
      for (std::uint32_t one = column; one < width; ++one) sum<1>(slab, one);
    });
  }

 private:
  template <int kLanes>
  WEFT_KERNEL void sum(std::uint32_t slab, std::uint32_t column) const {
    Lanes<kLanes> sums[Source::kOutputs] = {};
    std::uint64_t const first = std::uint64_t{slab} * kSlabRows;
    std::uint64_t const last = first + kSlabRows < rows ? first + kSlabRows : rows;
    for (std::uint64_t row = first; row < last; ++row) source.template visit<kLanes>(row, width, column, sums);
    WEFT_UNROLL for (int output = 0; output < Source::kOutputs; ++output) {
      std::uint64_t const at = (std::uint64_t{slab} * Source::kOutputs + output) * width;
      Array::from(parts, DataType::f32, at).store(sums[output], column);
    }
  }
};

/// out ← keep·out + the slabs' sums; a thread a column.
struct FinishColumnsBody {
  static constexpr unsigned kThreads = 128;
  using Shared = Nothing;

  float const* parts = nullptr;
  std::uint32_t slabs = 0;
  std::uint32_t outputs = 1;
  std::uint32_t width = 0;
  TensorPointer out[2] = {};
  float keep = 0;  ///< 0: what was there does not matter; 1: gradients accumulate

  [[nodiscard]] unsigned blocks() const { return (width + kThreads - 1) / kThreads; }

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    block.each_thread([&](unsigned t) {
      std::uint32_t const column = block.index() * kThreads + t;
      if (column >= width) return;
      for (std::uint32_t output = 0; output < outputs; ++output) {
        if (out[output].data == nullptr) continue;
        float sum = 0;
        for (std::uint32_t slab = 0; slab < slabs; ++slab) {
          sum += parts[(std::uint64_t{slab} * outputs + output) * width + column];
        }
        Array const to = Array::from(out[output].data, out[output].type, 0);
        if (keep != 0) sum = std::fma(keep, load<1>(to, column).x[0], sum);
        to.store(Lanes<1>{{sum}}, column);
      }
    });
  }
};

}  // namespace weft::kernels::cuda
