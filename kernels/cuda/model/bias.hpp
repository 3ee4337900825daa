#pragma once

#include "kernels/cuda/model/matrix.hpp"
#include "kernels/math/host_device.hpp"

namespace weft::kernels::cuda {

/// For BiasActivationBody: y = x + b; with b null it copies, from any type to any other.
struct Identity {
  static WEFT_HOST_DEVICE float value(float x) { return x; }
};

/// y = residual + x + b; one block per row. b may be null.
struct BiasAddBody {
  static constexpr unsigned kThreads = 256;
  using Shared = Nothing;

  TensorPointer y, x, b, residual;
  std::uint32_t width = 0;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    with_constant_type(x.type, y.type == x.type && residual.type == x.type, [&](auto const& type_of) {
      BiasAddBody{{y.data, type_of(y)}, {x.data, type_of(x)}, b, {residual.data, type_of(residual)}, width}.run(block);
    });
  }

 private:
  template <typename Block>
  WEFT_KERNEL void run(Block& block) const {
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
  using Inputs = RawLanes<kLanes>;

  [[nodiscard]] WEFT_KERNEL DataType type() const { return dy.type; }
  [[nodiscard]] WEFT_KERNEL bool of_one_type() const { return true; }
  template <typename TypeOf>
  [[nodiscard]] WEFT_KERNEL BiasGradient typed(TypeOf const& type_of) const {
    return {{dy.data, type_of(dy)}};
  }

  template <int kLanes>
  [[nodiscard]] WEFT_KERNEL Inputs<kLanes> load(std::uint64_t row, std::uint32_t width, std::uint32_t i) const {
    return row_of(dy, row, width).template load<kLanes>(i);
  }
  template <int kLanes>
  WEFT_KERNEL void visit(Inputs<kLanes> const& in, std::uint64_t /*row*/, std::uint32_t /*width*/, std::uint32_t /*i*/,
                         Lanes<kLanes>* sums) const {
    auto const g = widen(in, dy.type);
    WEFT_UNROLL for (int k = 0; k < kLanes; ++k) sums[0].x[k] += g.x[k];
  }
};

}  // namespace weft::kernels::cuda
