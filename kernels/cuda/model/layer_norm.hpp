#pragma once

#include <cmath>

#include "kernels/cuda/model/matrix.hpp"

namespace weft::kernels::cuda {

/// y = (x − mean)·rstd·w + b per row, rstd = 1/√(variance + eps); one block a row. The row is read three times, from
/// memory once.
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
    float const own_mean = sum_over(block, shared, in, [](float value) { return value; }) / static_cast<float>(width);
    float const squares =
        sum_over(block, shared, in, [&](float value) { return (value - own_mean) * (value - own_mean); });
    float const own_rstd = 1 / std::sqrt(squares / static_cast<float>(width) + eps);
    block.each_thread([&](unsigned t) {
      for_each_group<kThreads, 4>(t, width, [&](auto lanes, std::uint32_t i) {
        constexpr int kLanes = decltype(lanes)::kLanes;
        auto values = load<kLanes>(in, i);
        auto const weights = load_or_zero<kLanes>(w, i);
        auto const biases = load_or_zero<kLanes>(b, i);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
          values.x[k] = std::fma((values.x[k] - own_mean) * own_rstd, weights.x[k], biases.x[k]);
        }
        out.store(values, i);
      });
      if (t == 0) {
        mean[row] = own_mean;
        rstd[row] = own_rstd;
      }
    });
  }

 private:
  template <typename Block, typename F>
  WEFT_KERNEL float sum_over(Block& block, Shared& shared, Array const& in, F const& f) const {
    block.each_thread([&](unsigned t) {
      float sum = 0;
      for_each_group<kThreads, 4>(t, width, [&](auto lanes, std::uint32_t i) {
        auto const values = load<decltype(lanes)::kLanes>(in, i);
        WEFT_UNROLL for (float const value : values.x) sum += f(value);
      });
      shared.sum[t] = sum;
    });
    combine_all<kThreads>(block, shared.sum, [](float one, float other) { return one + other; });
    float const sum = shared.sum[0];
    block.each_thread([](unsigned /*thread*/) {});  // all have read it
    return sum;
  }
};

/// Gradient of x: rstd·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·w; one block a row.
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
    Array const out = row_of(dx, row, width);
    block.each_thread([&](unsigned t) {
      Sums own{0, 0};
      each(t, row, [&](auto const& g, auto const& x_hat, std::uint32_t /*element*/) {
        WEFT_UNROLL for (unsigned k = 0; k < sizeof(g.x) / sizeof(float); ++k) {
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
      each(t, row, [&](auto const& g, auto const& x_hat, std::uint32_t i) {
        constexpr int kLanes = sizeof(g.x) / sizeof(float);
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
  /// f(dy·w, x̂, first element) of `thread`'s elements.
  template <typename F>
  WEFT_KERNEL void each(unsigned thread, std::uint64_t row, F const& f) const {
    Array const gradients = row_of(dy, row, width);
    Array const in = row_of(x, row, width);
    for_each_group<kThreads, 4>(thread, width, [&](auto lanes, std::uint32_t i) {
      constexpr int kLanes = decltype(lanes)::kLanes;
      auto g = load<kLanes>(gradients, i);
      auto x_hat = load<kLanes>(in, i);
      auto const weights = load_or_zero<kLanes>(w, i);
      WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
        g.x[k] *= weights.x[k];
        x_hat.x[k] = (x_hat.x[k] - mean[row]) * rstd[row];
      }
      f(g, x_hat, i);
    });
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
