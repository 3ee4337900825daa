#pragma once

#include <cmath>

#include "kernels/cuda/model/matrix.hpp"

namespace weft::kernels::cuda {

/// x[row] = tokens[ids[row]] + positions[row mod seq]; one block per row.
struct EmbeddingBody {
  static constexpr unsigned kThreads = 128;
  using Shared = Nothing;

  TensorPointer x, tokens, positions;
  std::int32_t const* ids = nullptr;
  std::uint32_t seq = 0;
  std::uint32_t width = 0;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    Array const token = row_of(tokens, static_cast<std::uint64_t>(ids[block.index()]), width);
    Array const position = row_of(positions, block.index() % seq, width);
    Array const out = row_of(x, block.index(), width);
    block.each_thread([&](unsigned t) {
      for_each_group<kThreads, kGroup>(t, width, [&](auto lanes, std::uint32_t i) {
        constexpr int kLanes = decltype(lanes)::kLanes;
        auto values = load<kLanes>(token, i);
        auto const others = load<kLanes>(position, i);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) values.x[k] += others.x[k];
        out.store(values, i);
      });
    });
  }
};

/// For each row of the table: out ← keep·out + the sum of the rows of dx that used it. One block per row of the table,
/// which finds these rows itself, in order: no atomics are needed, so results have the same bits every time. Row r of
/// dx used table row ids[r]; if `ids` is null, row r mod seq.
struct EmbeddingGradientBody {
  static constexpr unsigned kThreads = 128;
  using Shared = Nothing;

  TensorPointer out, dx;
  std::int32_t const* ids = nullptr;
  std::uint32_t rows = 0;  ///< of dx
  std::uint32_t seq = 0;
  std::uint32_t width = 0;
  float keep = 0;  ///< 0: out's old contents are not read

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    Array const to = row_of(out, block.index(), width);
    block.each_thread([&](unsigned t) {
      for_each_group<kThreads, kGroup>(t, width, [&](auto lanes, std::uint32_t i) {
        constexpr int kLanes = decltype(lanes)::kLanes;
        Lanes<kLanes> sum{};
        for (std::uint32_t row = first_row(block.index()); row < rows; row += ids != nullptr ? 1 : seq) {
          if (ids != nullptr && static_cast<unsigned>(ids[row]) != block.index()) continue;
          auto const g = load<kLanes>(row_of(dx, row, width), i);
          WEFT_UNROLL for (int k = 0; k < kLanes; ++k) sum.x[k] += g.x[k];
        }
        if (keep != 0) {
          auto const old = load<kLanes>(to, i);
          WEFT_UNROLL for (int k = 0; k < kLanes; ++k) sum.x[k] = std::fma(keep, old.x[k], sum.x[k]);
        }
        to.store(sum, i);
      });
    });
  }

 private:
  /// The first row of dx that may have used row `of`. A position that no sequence reaches has none.
  [[nodiscard]] WEFT_KERNEL std::uint32_t first_row(std::uint32_t of) const {
    if (ids != nullptr) return 0;
    return of < seq ? of : rows;
  }
};

}  // namespace weft::kernels::cuda
