#pragma once

#include "kernels/cuda/model/matrix.hpp"

namespace weft::kernels::cuda {

// Sums over all rows, for the gradients of weights and biases. They take two launches: the first sums slabs of rows,
// the second adds up the slabs in a fixed order. The order depends on the matrix's size alone, so results have the same
// bits every time.

inline constexpr std::uint32_t kSlabRows = 32;

/// How a launch divides a matrix.
struct ColumnGrid {
  std::uint32_t slabs, tiles;
  [[nodiscard]] unsigned blocks() const { return slabs * tiles; }
};

/// Computes the sums of a slab. A `Source` has kOutputs and
///   template <int kLanes> Inputs load<kLanes>(row, width, first column)
///   template <int kLanes> visit(Inputs<kLanes>, row, width, first column, Lanes<kLanes>* sums)
/// visit() adds the values of a few columns to the sums, and may also write a matrix: each element is visited once,
/// while the next row is being loaded. For with_constant_type() it also has
///   DataType type(), bool of_one_type(), Source typed(type_of)
template <typename Source>
struct ColumnSumsBody {
  static constexpr unsigned kThreads = 128;
  static constexpr unsigned kBlocksAtOnce = 8;
  static constexpr std::uint32_t kTile = kGroup * kThreads;
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
    with_constant_type(source.type(), source.of_one_type(), [&](auto const& type_of) {
      auto same = *this;
      same.source = source.typed(type_of);
      same.run(block);
    });
  }

 private:
  template <typename Block>
  WEFT_KERNEL void run(Block& block) const {
    std::uint32_t const tiles = (width + kTile - 1) / kTile;
    std::uint32_t const slab = block.index() / tiles;
    std::uint32_t const first_column = block.index() % tiles * kTile;
    block.each_thread([&](unsigned t) {
      std::uint32_t const column = first_column + kGroup * t;
      if (column + kGroup <= width) return sum<kGroup>(slab, column);
      for (std::uint32_t one = column; one < width; ++one) sum<1>(slab, one);
    });
  }

  template <int kLanes>
  WEFT_KERNEL void sum(std::uint32_t slab, std::uint32_t column) const {
    Lanes<kLanes> sums[Source::kOutputs] = {};
    std::uint64_t const first = std::uint64_t{slab} * kSlabRows;
    std::uint64_t const last = first + kSlabRows < rows ? first + kSlabRows : rows;
    auto next = source.template load<kLanes>(first, width, column);
    for (std::uint64_t row = first; row < last; ++row) {
      auto const inputs = next;
      if (row + 1 < last) next = source.template load<kLanes>(row + 1, width, column);
      source.template visit<kLanes>(inputs, row, width, column, sums);
    }
    WEFT_UNROLL for (int output = 0; output < Source::kOutputs; ++output) {
      std::uint64_t const at = (std::uint64_t{slab} * Source::kOutputs + output) * width;
      Array::from(parts, DataType::f32, at).store(sums[output], column);
    }
  }
};

/// out ← keep·out + the slabs' sums. kShares threads of a block share a column: each sums every kShares-th slab.
struct FinishColumnsBody {
  static constexpr unsigned kColumns = 32;
  static constexpr unsigned kShares = 8;
  static constexpr unsigned kThreads = kColumns * kShares;
  struct Shared {
    float sum[kThreads];
  };

  float const* parts = nullptr;
  std::uint32_t slabs = 0;
  std::uint32_t outputs = 1;
  std::uint32_t width = 0;
  TensorPointer out[2] = {};
  float keep = 0;  ///< 0: out's old contents are not read; 1: gradients accumulate

  [[nodiscard]] unsigned blocks() const { return (width + kColumns - 1) / kColumns; }

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    for (std::uint32_t output = 0; output < outputs; ++output) {
      if (out[output].data == nullptr) continue;
      block.each_thread([&](unsigned t) {
        std::uint32_t const column = block.index() * kColumns + t % kColumns;
        shared.sum[t] = column < width ? share_of(output, column, t / kColumns) : 0.0F;
      });
      block.each_thread([&](unsigned t) {
        std::uint32_t const column = block.index() * kColumns + t;
        if (t >= kColumns || column >= width) return;
        float sum = 0;
        WEFT_UNROLL for (unsigned share = 0; share < kShares; ++share) sum += shared.sum[share * kColumns + t];
        Array const to = Array::from(out[output].data, out[output].type, 0);
        if (keep != 0) sum = std::fma(keep, load<1>(to, column).x[0], sum);
        to.store(Lanes<1>{{sum}}, column);
      });
    }
  }

 private:
  [[nodiscard]] WEFT_KERNEL float share_of(std::uint32_t output, std::uint32_t column, std::uint32_t share) const {
    float sum = 0;
    for (std::uint32_t slab = share; slab < slabs; slab += kShares) {
      sum += parts[(std::uint64_t{slab} * outputs + output) * width + column];
    }
    return sum;
  }
};

}  // namespace weft::kernels::cuda
