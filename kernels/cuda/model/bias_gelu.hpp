#pragma once

#include "kernels/cuda/model/matrix.hpp"
#include "kernels/math/gelu.hpp"

namespace weft::kernels::cuda {

/// y = activation(x + b); one block a row. b may be null.
template <typename Activation>
struct BiasActivationBody {
  static constexpr unsigned kThreads = 256;
  using Shared = Nothing;

  TensorPointer y, x, b;
  std::uint32_t width = 0;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    Array const in = row_of(x, block.index(), width);
    Array const out = row_of(y, block.index(), width);
    block.each_thread([&](unsigned t) {
      for_each_group<kThreads, kGroup>(t, width, [&](auto lanes, std::uint32_t i) {
        constexpr int kLanes = decltype(lanes)::kLanes;
        auto values = load<kLanes>(in, i);
        auto const biases = load_or_zero<kLanes>(b, i);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) values.x[k] = Activation::value(values.x[k] + biases.x[k]);
        out.store(values, i);
      });
    });
  }
};

/// For ColumnSumsBody: writes dx = dy·activation'(x + b) and sums b's gradient.
template <typename Activation>
struct BiasActivationGradient {
  static constexpr int kOutputs = 1;
  TensorPointer dx, dy, x, b;

  template <int kLanes>
  WEFT_KERNEL void visit(std::uint64_t row, std::uint32_t width, std::uint32_t i, Lanes<kLanes>* sums) const {
    auto g = load<kLanes>(row_of(dy, row, width), i);
    auto const values = load<kLanes>(row_of(x, row, width), i);
    auto const biases = load_or_zero<kLanes>(b, i);
    WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
      g.x[k] *= Activation::slope(values.x[k] + biases.x[k]);
      sums[0].x[k] += g.x[k];
    }
    row_of(dx, row, width).store(g, i);
  }
};

}  // namespace weft::kernels::cuda
