#pragma once

#include <cmath>

#include "kernels/cuda/chunk.hpp"
#include "kernels/cuda/groups.hpp"
#include "kernels/cuda/lanes.hpp"
#include "kernels/math/clip.hpp"

namespace weft::kernels::cuda {

/// The tensors of a launch over lists: out[i] is computed from x[i], and from y[i] if the operation reads y. They may
/// be the same memory.
struct MapTable {
  TensorPointer const* x = nullptr;
  TensorPointer const* y = nullptr;
  TensorPointer const* out = nullptr;
  Chunk const* chunks = nullptr;
};

/// out = factor·x, rounded to out's type: scaling in place, bucket pack and unpack, conversion.
struct ScaleOp {
  static constexpr bool kReadsY = false;
  static constexpr bool kChecks = false;
  Scalar factor;

  struct Ready {
    float factor;
    WEFT_KERNEL float operator()(float x, float /*y*/) const { return x * factor; }
  };
  [[nodiscard]] WEFT_KERNEL Ready ready() const { return {factor.get()}; }
};

/// ScaleOp, which also sets found_inf to 1 if an element of x is not finite.
struct ScaleAndCheckOp : ScaleOp {
  static constexpr bool kChecks = true;
};

/// out = x clamped to [−limit, limit]; NaN stays.
struct ClampOp {
  static constexpr bool kReadsY = false;
  static constexpr bool kChecks = false;
  float limit = 0;

  [[nodiscard]] WEFT_KERNEL ClampOp ready() const { return *this; }
  WEFT_KERNEL float operator()(float x, float /*y*/) const { return clip_value(x, limit); }
};

/// out = a·x + b·y
struct AxpbyOp {
  static constexpr bool kReadsY = true;
  static constexpr bool kChecks = false;
  Scalar a, b;

  struct Ready {
    float a, b;
    WEFT_KERNEL float operator()(float x, float y) const { return std::fma(a, x, b * y); }
  };
  [[nodiscard]] WEFT_KERNEL Ready ready() const { return {a.get(), b.get()}; }
};

/// Applies Op to all tensors; one block per chunk.
template <typename Op>
struct MapBody {
  static constexpr unsigned kThreads = 256;
  using Shared = Nothing;

  MapTable table;
  Op op;
  float* found_inf = nullptr;  ///< for operations that check

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    Chunk const chunk = table.chunks[block.index()];
    auto const at = [&](TensorPointer const& tensor) { return Array::from(tensor.data, tensor.type, chunk.first); };
    Array const x = at(table.x[chunk.tensor]);
    Array const out = at(table.out[chunk.tensor]);
    Array const y = Op::kReadsY ? at(table.y[chunk.tensor]) : Array{};
    // A thread takes sixteen bytes of the widest type at a time.
    bool const narrow = x.narrow() && out.narrow() && (!Op::kReadsY || y.narrow());
    auto const ready = op.ready();
    block.each_thread([&](unsigned t) {
      float poison = 0;
      auto const visit = [&](auto width, std::uint32_t i) {
        constexpr int kLanes = decltype(width)::kLanes;
        auto const raw_x = x.template load<kLanes>(i);
        RawLanes<kLanes> raw_y{};
        if constexpr (Op::kReadsY) raw_y = y.template load<kLanes>(i);
        auto values = widen(raw_x, x.type);
        auto const others = widen(raw_y, y.type);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
          if constexpr (Op::kChecks) poison += values.x[k] * 0.0F;  // NaN where not finite
          values.x[k] = ready(values.x[k], others.x[k]);
        }
        out.store(values, i);
      };
      if (narrow) {
        for_each_group<kThreads, 8>(t, chunk.count, visit);
      } else {
        for_each_group<kThreads, 4>(t, chunk.count, visit);
      }
      if (Op::kChecks && !(poison == 0)) *found_inf = 1;  // no race: every thread that writes, writes 1
    });
  }
};

}  // namespace weft::kernels::cuda
