#pragma once

#include <cmath>

#include "kernels/cuda/model/matrix.hpp"

namespace weft::kernels::cuda {

/// y = (x − mean)·rstd·w + b per row, rstd = 1/√(variance + eps); one block a row. w and b may be null: 1 and 0.
struct LayerNormBody {
  static constexpr unsigned kThreads = 128;
  struct Shared {
    float sum[kThreads];
  };

  TensorPointer y, x, w, b;
  float* mean = nullptr;  ///< of every row, kept for backward
  float* rstd = nullptr;
  std::uint32_t width = 0;
  float eps = 1e-5F;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    std::uint64_t const row = block.index();
    Array const in = row_of(x, row, width);
    Array const out = row_of(y, row, width);
    typename Block::template PerThread<RowShare<kThreads>> values;
    block.each_thread([&](unsigned t) { values[t].load_first(in, t, width); });
    auto const sum_over = [&](auto const& f) {
      block.each_thread([&](unsigned t) {
        float sum = 0;
        values[t].each(in, t, width, [&](auto const& lanes, std::uint32_t /*element*/) {
          WEFT_UNROLL for (float const value : lanes.x) sum += f(value);
        });
        shared.sum[t] = sum;
      });
      combine_all<kThreads>(block, shared.sum, [](float one, float other) { return one + other; });
      float const sum = shared.sum[0];
      block.each_thread([](unsigned /*thread*/) {});  // all have read it
      return sum;
    };
    float const own_mean = sum_over([](float value) { return value; }) / static_cast<float>(width);
    float const squares = sum_over([&](float value) { return (value - own_mean) * (value - own_mean); });
    float const own_rstd = 1 / std::sqrt(squares / static_cast<float>(width) + eps);
    block.each_thread([&](unsigned t) {
      values[t].each(in, t, width, [&](auto lanes, std::uint32_t i) {
        constexpr int kLanes = decltype(lanes)::kLanes;
        auto const weights = load_or<kLanes>(w, i, 1);
        auto const biases = load_or_zero<kLanes>(b, i);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
          lanes.x[k] = std::fma((lanes.x[k] - own_mean) * own_rstd, weights.x[k], biases.x[k]);
        }
        out.store(lanes, i);
      });
      if (t == 0) {
        mean[row] = own_mean;
        rstd[row] = own_rstd;
      }
    });
  }
};

/// Gradient of x: rstd·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·w; one block a row. w may be null: 1.
struct LayerNormInputBody {
  static constexpr unsigned kThreads = 128;
  struct Sums {
    float plain, with_x;
  };
  struct Shared {
    Sums sum[kThreads];
  };

  TensorPointer dx, dy, x, w;
  float const* mean = nullptr;
  float const* rstd = nullptr;
  std::uint32_t width = 0;
  bool add = false;  ///< to dx, which has another branch's gradient

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    std::uint64_t const row = block.index();
    Array const gradients = row_of(dy, row, width);
    Array const in = row_of(x, row, width);
    Array const out = row_of(dx, row, width);
    typename Block::template PerThread<RowShare<kThreads>> gradient;
    block.each_thread([&](unsigned t) {
      gradient[t].load_first(gradients, t, width);
      Sums own{0, 0};
      gradient[t].each(gradients, t, width, [&](auto g, std::uint32_t i) {
        auto const x_hat = scale(g, in, row, i);
        WEFT_UNROLL for (int k = 0; k < decltype(g)::kLanes; ++k) {
          own.plain += g.x[k];
          own.with_x = std::fma(g.x[k], x_hat.x[k], own.with_x);
        }
      });
      shared.sum[t] = own;
    });
    combine_all<kThreads>(block, shared.sum, [](Sums const& a, Sums const& b) {
      return Sums{a.plain + b.plain, a.with_x + b.with_x};
    });
    block.each_thread([&](unsigned t) {
      float const plain = shared.sum[0].plain / static_cast<float>(width);
      float const with_x = shared.sum[0].with_x / static_cast<float>(width);
      gradient[t].each(gradients, t, width, [&](auto g, std::uint32_t i) {
        constexpr int kLanes = decltype(g)::kLanes;
        auto const x_hat = scale(g, in, row, i);
        Lanes<kLanes> result{};
        if (add) result = load<kLanes>(out, i);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
          result.x[k] += rstd[row] * (g.x[k] - plain - x_hat.x[k] * with_x);
        }
        out.store(result, i);
      });
    });
  }

 private:
  /// Multiplies g by w's elements from i on; x̂ of the same elements.
  template <int kLanes>
  WEFT_KERNEL Lanes<kLanes> scale(Lanes<kLanes>& g, Array const& in, std::uint64_t row, std::uint32_t i) const {
    auto x_hat = load<kLanes>(in, i);  // the second time from the cache
    auto const weights = load_or<kLanes>(w, i, 1);
    WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
      g.x[k] *= weights.x[k];
      x_hat.x[k] = (x_hat.x[k] - mean[row]) * rstd[row];
    }
    return x_hat;
  }
};

/// For ColumnSumsBody: gradients of w (dy·x̂) and b (dy).
struct LayerNormWeights {
  static constexpr int kOutputs = 2;
  TensorPointer dy, x;
  float const* mean = nullptr;
  float const* rstd = nullptr;

  template <int kLanes>
  WEFT_KERNEL void visit(std::uint64_t row, std::uint32_t width, std::uint32_t i, Lanes<kLanes>* sums) const {
    auto const g = load<kLanes>(row_of(dy, row, width), i);
    auto const values = load<kLanes>(row_of(x, row, width), i);
    WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
      sums[0].x[k] = std::fma(g.x[k], (values.x[k] - mean[row]) * rstd[row], sums[0].x[k]);
      sums[1].x[k] += g.x[k];
    }
  }
};

}  // namespace weft::kernels::cuda
