#pragma once

#include <cmath>

#include "kernels/cuda/model/matrix.hpp"

namespace weft::kernels::cuda {

// The loss is the mean over the rows of −log softmax(logits)[target]. Rows with a target below 0 are ignored.

/// Each row's loss, and log Σ exp for backward; one block per row, which is read once.
struct CrossEntropyBody {
  static constexpr unsigned kThreads = 256;
  /// Σ exp(x − largest)
  struct Sum {
    float largest, sum;
  };
  struct Shared {
    Sum part[kThreads];
  };

  TensorPointer logits;
  std::int32_t const* targets = nullptr;
  std::uint32_t vocabulary = 0;
  float* losses = nullptr;
  float* log_sums = nullptr;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    with_constant_type(logits.type, true, [&](auto const& type_of) {
      CrossEntropyBody{{logits.data, type_of(logits)}, targets, vocabulary, losses, log_sums}.run(block, shared);
    });
  }

 private:
  template <typename Block>
  WEFT_KERNEL void run(Block& block, Shared& shared) const {
    std::uint64_t const row = block.index();
    Array const in = row_of(logits, row, vocabulary);
    block.each_thread([&](unsigned t) {
      Sum own{-INFINITY, 0};
      for_each_group<kThreads, kGroup>(t, vocabulary, [&](auto lanes, std::uint32_t i) {
        auto const values = load<decltype(lanes)::kLanes>(in, i);
        own = with(own, values);
      });
      shared.part[t] = own;
    });
    combine_all<kThreads>(block, shared.part, [](Sum const& a, Sum const& b) { return combined(a, b); });
    block.each_thread([&](unsigned t) {
      if (t != 0) return;
      std::int32_t const target = targets[row];
      float const log_sum = shared.part[0].largest + std::log(shared.part[0].sum);
      log_sums[row] = log_sum;
      losses[row] = target < 0 ? 0.0F : log_sum - load<1>(in, static_cast<std::uint32_t>(target)).x[0];
    });
  }

  /// Adds several values at once, which waits less for exponentials than one value after the other.
  template <int kLanes>
  static WEFT_KERNEL Sum with(Sum const& before, Lanes<kLanes> const& values) {
    float largest = before.largest;
    WEFT_UNROLL for (float const value : values.x) largest = std::fmax(largest, value);  // passes NaN over
    if (largest == -INFINITY) {
      float sum = before.sum;
      WEFT_UNROLL for (float const value : values.x) sum = value == -INFINITY ? sum : value;
      return std::isnan(sum) ? Sum{sum, sum} : before;
    }
    float sum = before.sum * std::exp(before.largest - largest);
    WEFT_UNROLL for (float const value : values.x) sum += std::exp(value - largest);
    return {largest, sum};
  }
  static WEFT_KERNEL Sum combined(Sum const& a, Sum const& b) {
    if (b.largest == -INFINITY) return a;  // −∞ − −∞ is NaN
    if (a.largest == -INFINITY) return b;
    if (a.largest >= b.largest) return {a.largest, std::fma(b.sum, std::exp(b.largest - a.largest), a.sum)};
    return {b.largest, std::fma(a.sum, std::exp(a.largest - b.largest), b.sum)};
  }
};

/// The mean loss over all rows that count, and 1 / their number; one block.
struct MeanLossBody {
  static constexpr unsigned kThreads = 256;
  struct Sum {
    double loss;
    std::uint32_t rows;
  };
  struct Shared {
    Sum part[kThreads];
  };

  float const* losses = nullptr;
  std::int32_t const* targets = nullptr;
  std::uint32_t rows = 0;
  float* mean = nullptr;
  float* inverse_rows = nullptr;  ///< 0 if no row counts

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    block.each_thread([&](unsigned t) {
      Sum own{0, 0};
      for (std::uint32_t row = t; row < rows; row += kThreads) {
        if (targets[row] < 0) continue;
        own.loss += losses[row];
        ++own.rows;
      }
      shared.part[t] = own;
    });
    combine_all<kThreads>(block, shared.part, [](Sum const& a, Sum const& b) {
      return Sum{a.loss + b.loss, a.rows + b.rows};
    });
    block.each_thread([&](unsigned t) {
      if (t != 0) return;
      Sum const all = shared.part[0];
      *mean = all.rows == 0 ? 0.0F : static_cast<float>(all.loss / all.rows);
      *inverse_rows = all.rows == 0 ? 0.0F : 1 / static_cast<float>(all.rows);
    });
  }
};

/// Gradient of the logits, share·scale·(softmax − one at the target) / rows; one block per row. May be in place.
struct CrossEntropyGradientBody {
  static constexpr unsigned kThreads = 256;
  using Shared = Nothing;

  TensorPointer dlogits, logits;
  std::int32_t const* targets = nullptr;
  float const* log_sums = nullptr;
  float const* inverse_rows = nullptr;
  Scalar scale;  ///< a loss scale
  std::uint32_t vocabulary = 0;
  float share = 1;  ///< this pass's share of a step that has several passes

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    std::uint64_t const row = block.index();
    Array const in = row_of(logits, row, vocabulary);
    Array const out = row_of(dlogits, row, vocabulary);
    std::int32_t const target = targets[row];
    float const factor = target < 0 ? 0.0F : share * scale.get() * *inverse_rows;
    float const log_sum = log_sums[row];
    block.each_thread([&](unsigned t) {
      for_each_group<kThreads, kGroup>(t, vocabulary, [&](auto lanes, std::uint32_t i) {
        constexpr int kLanes = decltype(lanes)::kLanes;
        auto values = load<kLanes>(in, i);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
          bool const is_target = static_cast<std::int64_t>(i) + k == target;
          float const softmax = std::exp(values.x[k] - log_sum);
          values.x[k] = target < 0 ? 0.0F : factor * (softmax - (is_target ? 1.0F : 0.0F));
        }
        out.store(values, i);
      });
    });
  }
};

}  // namespace weft::kernels::cuda
