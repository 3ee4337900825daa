#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/cuda/model/columns.hpp"
#include "kernels/cuda/model/matrix.hpp"

namespace weft::kernels::cuda {

/// y = (x − mean)·rstd·w + b per row, rstd = 1/√(variance + eps); one block per row. Null w and b stand for 1 and 0.
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
      block.each_thread([](unsigned /*thread*/) {});  // waits until all threads have read it
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

/// Gradient of x: rstd·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·w; one block per row. A null w stands for 1.
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
  bool add = false;  ///< adds to dx, which has another branch's gradient, instead of overwriting it

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
  /// Multiplies g by w's elements from i on. Returns x̂ of the same elements.
  template <int kLanes>
  WEFT_KERNEL Lanes<kLanes> scale(Lanes<kLanes>& g, Array const& in, std::uint64_t row, std::uint32_t i) const {
    auto x_hat = load<kLanes>(in, i);  // the second time, this comes from the cache
    auto const weights = load_or<kLanes>(w, i, 1);
    WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
      g.x[k] *= weights.x[k];
      x_hat.x[k] = (x_hat.x[k] - mean[row]) * rstd[row];
    }
    return x_hat;
  }
};

/// All gradients of a layer norm of up to kMostColumns columns in one pass over dy and x. A block takes a slab of rows,
/// of which each thread has the same few columns. It writes the slab's sums for w and b like
/// ColumnSumsBody<LayerNormWeights>, with the same bits. While one row is worked on, the next one is being loaded.
template <unsigned kBlockThreads>
struct LayerNormGradientBody {
  static constexpr unsigned kThreads = kBlockThreads;
  static constexpr unsigned kBlocksAtOnce = 1024 / kThreads;
  static constexpr std::uint32_t kMostColumns = kThreads * kGroup;
  using Sums = LayerNormInputBody::Sums;
  struct Shared {
    Sums sum[kThreads];
  };

  LayerNormInputBody input;
  std::uint64_t rows = 0;
  float* parts = nullptr;  ///< slabs · 2 · width

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    with_constant_type(input.x.type, input.dy.type == input.x.type && input.dx.type == input.x.type,
                       [&](auto const& type_of) {
                         auto same = *this;
                         same.input.x.type = type_of(input.x);
                         same.input.dy.type = type_of(input.dy);
                         same.input.dx.type = type_of(input.dx);
                         same.run(block, shared);
                       });
  }

 private:
  /// Some neighbouring columns of a thread: a row's elements, the sums over the slab, and the weights.
  template <int kCount>
  struct Part {
    static constexpr int kLanes = kCount;
    RawLanes<kCount> dy, x, next_dy, next_x;
    Lanes<kCount> dw, db, w;
  };
  struct Share {
    Part<kGroup> group;
    Part<1> last;  ///< one of the columns that are left over
  };

  template <typename F>
  WEFT_KERNEL void for_each(Share& share, unsigned thread, F const& f) const {
    std::uint32_t const i = thread * kGroup;
    if (i + kGroup <= input.width) f(share.group, i);
    std::uint32_t const one = input.width / kGroup * kGroup + thread;
    if (one < input.width) f(share.last, one);
  }

  template <typename Block>
  WEFT_KERNEL void run(Block& block, Shared& shared) const {
    std::uint64_t const first = std::uint64_t{block.index()} * kSlabRows;
    std::uint64_t const last = first + kSlabRows < rows ? first + kSlabRows : rows;
    typename Block::template PerThread<Share> share;
    block.each_thread([&](unsigned t) {
      share[t] = Share{};
      for_each(share[t], t, [&](auto& part, std::uint32_t i) {
        part.w = load_or<std::decay_t<decltype(part)>::kLanes>(input.w, i, 1);
      });
      fetch(share[t], t, first);
    });
    for (std::uint64_t row = first; row < last; ++row) {
      float const mean = input.mean[row];
      float const rstd = input.rstd[row];
      block.each_thread([&](unsigned t) {
        take(share[t], t);
        if (row + 1 < last) fetch(share[t], t, row + 1);
        shared.sum[t] = add(share[t], t, mean, rstd);
      });
      combine_all<kThreads>(block, shared.sum, [](Sums const& a, Sums const& b) {
        return Sums{a.plain + b.plain, a.with_x + b.with_x};
      });
      block.each_thread([&](unsigned t) { write_row(share[t], t, row, mean, rstd, shared.sum[0]); });
    }
    block.each_thread([&](unsigned t) {
      for_each(share[t], t, [&](auto const& part, std::uint32_t i) {
        std::uint64_t const at = std::uint64_t{block.index()} * 2 * input.width;
        Array::from(parts, DataType::f32, at).store(part.dw, i);
        Array::from(parts, DataType::f32, at + input.width).store(part.db, i);
      });
    });
  }

  WEFT_KERNEL void fetch(Share& share, unsigned thread, std::uint64_t row) const {
    for_each(share, thread, [&](auto& part, std::uint32_t i) {
      constexpr int kCount = std::decay_t<decltype(part)>::kLanes;
      part.next_dy = row_of(input.dy, row, input.width).template load<kCount>(i);
      part.next_x = row_of(input.x, row, input.width).template load<kCount>(i);
    });
  }

  WEFT_KERNEL void take(Share& share, unsigned thread) const {
    for_each(share, thread, [](auto& part, std::uint32_t /*element*/) {
      part.dy = part.next_dy;
      part.x = part.next_x;
    });
  }

  /// Adds a row to the slab's sums. Returns the thread's part of the row's own sums.
  WEFT_KERNEL Sums add(Share& share, unsigned thread, float mean, float rstd) const {
    Sums own{0, 0};
    for_each(share, thread, [&](auto& part, std::uint32_t /*element*/) {
      constexpr int kCount = std::decay_t<decltype(part)>::kLanes;
      auto const g = widen(part.dy, input.dy.type);
      auto const values = widen(part.x, input.x.type);
      WEFT_UNROLL for (int k = 0; k < kCount; ++k) {
        float const x_hat = (values.x[k] - mean) * rstd;
        part.dw.x[k] = std::fma(g.x[k], x_hat, part.dw.x[k]);
        part.db.x[k] += g.x[k];
        float const weighted = g.x[k] * part.w.x[k];
        own.plain += weighted;
        own.with_x = std::fma(weighted, x_hat, own.with_x);
      }
    });
    return own;
  }

  WEFT_KERNEL void write_row(Share& share, unsigned thread, std::uint64_t row, float mean, float rstd,
                             Sums const& sums) const {
    float const plain = sums.plain / static_cast<float>(input.width);
    float const with_x = sums.with_x / static_cast<float>(input.width);
    Array const out = row_of(input.dx, row, input.width);
    for_each(share, thread, [&](auto const& part, std::uint32_t i) {
      constexpr int kCount = std::decay_t<decltype(part)>::kLanes;
      auto const g = widen(part.dy, input.dy.type);
      auto const values = widen(part.x, input.x.type);
      Lanes<kCount> result{};
      if (input.add) result = load<kCount>(out, i);
      WEFT_UNROLL for (int k = 0; k < kCount; ++k) {
        float const x_hat = (values.x[k] - mean) * rstd;
        result.x[k] += rstd * (g.x[k] * part.w.x[k] - plain - x_hat * with_x);
      }
      out.store(result, i);
    });
  }
};

inline constexpr std::uint32_t kMostLayerNormGradientColumns = LayerNormGradientBody<1024>::kMostColumns;

/// Calls launch(body, blocks) with the smallest block size that rows of this width fit.
template <typename Launch>
void launch_layer_norm_gradient(LayerNormInputBody const& input, std::uint64_t rows, float* parts,
                                Launch const& launch) {
  auto const slabs = static_cast<unsigned>((rows + kSlabRows - 1) / kSlabRows);
  if (input.width <= LayerNormGradientBody<128>::kMostColumns) {
    launch(LayerNormGradientBody<128>{input, rows, parts}, slabs);
  } else if (input.width <= LayerNormGradientBody<256>::kMostColumns) {
    launch(LayerNormGradientBody<256>{input, rows, parts}, slabs);
  } else if (input.width <= LayerNormGradientBody<512>::kMostColumns) {
    launch(LayerNormGradientBody<512>{input, rows, parts}, slabs);
  } else {
    launch(LayerNormGradientBody<1024>{input, rows, parts}, slabs);
  }
}

/// For ColumnSumsBody: the gradients of w (sum of dy·x̂) and b (sum of dy).
struct LayerNormWeights {
  static constexpr int kOutputs = 2;
  TensorPointer dy, x;
  float const* mean = nullptr;
  float const* rstd = nullptr;

  template <int kLanes>
  struct Inputs {
    RawLanes<kLanes> dy, x;
  };

  [[nodiscard]] WEFT_KERNEL DataType type() const { return x.type; }
  [[nodiscard]] WEFT_KERNEL bool of_one_type() const { return dy.type == x.type; }
  template <typename TypeOf>
  [[nodiscard]] WEFT_KERNEL LayerNormWeights typed(TypeOf const& type_of) const {
    return {{dy.data, type_of(dy)}, {x.data, type_of(x)}, mean, rstd};
  }

  template <int kLanes>
  [[nodiscard]] WEFT_KERNEL Inputs<kLanes> load(std::uint64_t row, std::uint32_t width, std::uint32_t i) const {
    return {row_of(dy, row, width).template load<kLanes>(i), row_of(x, row, width).template load<kLanes>(i)};
  }
  template <int kLanes>
  WEFT_KERNEL void visit(Inputs<kLanes> const& in, std::uint64_t row, std::uint32_t /*width*/, std::uint32_t /*i*/,
                         Lanes<kLanes>* sums) const {
    auto const g = widen(in.dy, dy.type);
    auto const values = widen(in.x, x.type);
    WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
      sums[0].x[k] = std::fma(g.x[k], (values.x[k] - mean[row]) * rstd[row], sums[0].x[k]);
      sums[1].x[k] += g.x[k];
    }
  }
};

}  // namespace weft::kernels::cuda
