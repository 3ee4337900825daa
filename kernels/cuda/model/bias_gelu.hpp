#pragma once

#include "kernels/cuda/model/matrix.hpp"
#include "kernels/math/gelu.hpp"

namespace weft::kernels::cuda {

/// y = activation(x + b); one block per row. b may be null.
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
  struct Inputs {
    RawLanes<kLanes> dy, x;
  };

  [[nodiscard]] WEFT_KERNEL DataType type() const { return x.type; }
  [[nodiscard]] WEFT_KERNEL bool of_one_type() const { return dy.type == x.type && dx.type == x.type; }
  template <typename TypeOf>
  [[nodiscard]] WEFT_KERNEL BiasActivationGradient typed(TypeOf const& type_of) const {
    return {{dx.data, type_of(dx)}, {dy.data, type_of(dy)}, {x.data, type_of(x)}, b};
  }

  template <int kLanes>
  [[nodiscard]] WEFT_KERNEL Inputs<kLanes> load(std::uint64_t row, std::uint32_t width, std::uint32_t i) const {
    return {row_of(dy, row, width).template load<kLanes>(i), row_of(x, row, width).template load<kLanes>(i)};
  }
  template <int kLanes>
  WEFT_KERNEL void visit(Inputs<kLanes> const& in, std::uint64_t row, std::uint32_t width, std::uint32_t i,
                         Lanes<kLanes>* sums) const {
    auto g = widen(in.dy, dy.type);
    auto const values = widen(in.x, x.type);
    auto const biases = load_or_zero<kLanes>(b, i);
    WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
      g.x[k] *= Activation::slope(values.x[k] + biases.x[k]);
      sums[0].x[k] += g.x[k];
    }
    row_of(dx, row, width).store(g, i);
  }
};

}  // namespace weft::kernels::cuda
