#pragma once

#include "kernels/cuda/model/matrix.hpp"
#include "kernels/math/host_device.hpp"

namespace weft::kernels::cuda {

/// For BiasActivationBody: y = x + b; without b a copy, from any type to any other.
struct Identity {
  static WEFT_HOST_DEVICE float value(float x) { return x; }
};

/// y = residual + x + b; one block a row. b may be null.
struct BiasAddBody {
  static constexpr unsigned kThreads = 256;
  using Shared = Nothing;

  TensorPointer y, x, b, residual;
  std::uint32_t width = 0;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    Array const in = row_of(x, block.index(), width);
    Array const beside = row_of(residual, block.index(), width);
    Array const out = row_of(y, block.index(), width);
    block.each_thread([&](unsigned t) {
      for_each_group<kThreads, kGroup>(t, width, [&](auto lanes, std::uint32_t i) {
        constexpr int kLanes = decltype(lanes)::kLanes;
        auto values = load<kLanes>(in, i);
        auto const others = load<kLanes>(beside, i);
        auto const biases = load_or_zero<kLanes>(b, i);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) values.x[k] = values.x[k] + biases.x[k] + others.x[k];
        out.store(values, i);
      });
    });
  }
};

/// For ColumnSumsBody: b's gradient, the sum of dy.
struct BiasGradient {
  static constexpr int kOutputs = 1;
  TensorPointer dy;

  template <int kLanes>
  WEFT_KERNEL void visit(std::uint64_t row, std::uint32_t width, std::uint32_t i, Lanes<kLanes>* sums) const {
    auto const g = load<kLanes>(row_of(dy, row, width), i);
    WEFT_UNROLL for (int k = 0; k < kLanes; ++k) sums[0].x[k] += g.x[k];
  }
};

}  // namespace weft::kernels::cuda
