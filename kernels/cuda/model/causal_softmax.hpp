#pragma once

#include <cmath>

#include "kernels/cuda/model/matrix.hpp"

namespace weft::kernels::cuda {

// The input is a sequence of matrices with `seq` rows and columns each. Row t has the scores of token t for tokens 0 to
// t; scores of later tokens are ignored. One block per row.

/// p = softmax of the row's first t + 1 scores, zeros after them; p may be the same memory as the scores.
struct CausalSoftmaxBody {
  static constexpr unsigned kThreads = 128;
  struct Shared {
    float part[kThreads];
  };

  TensorPointer p, scores;
  std::uint32_t seq = 0;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    std::uint32_t const used = block.index() % seq + 1;
    Array const in = row_of(scores, block.index(), seq);
    Array const out = row_of(p, block.index(), seq);
    block.each_thread([&](unsigned t) {
      float largest = -INFINITY;
      for_each_group<kThreads, kGroup>(t, used, [&](auto lanes, std::uint32_t i) {
        auto const values = load<decltype(lanes)::kLanes>(in, i);
        WEFT_UNROLL for (float const value : values.x) largest = value > largest ? value : largest;
      });
      shared.part[t] = largest;
    });
    combine_all<kThreads>(block, shared.part, [](float one, float other) { return one > other ? one : other; });
    float const largest = shared.part[0];
    block.each_thread([](unsigned /*thread*/) {});  // waits until all threads have read it
    block.each_thread([&](unsigned t) {
      float sum = 0;
      for_each_group<kThreads, kGroup>(t, used, [&](auto lanes, std::uint32_t i) {
        auto const values = load<decltype(lanes)::kLanes>(in, i);
        WEFT_UNROLL for (float const value : values.x) sum += std::exp(value - largest);
      });
      shared.part[t] = sum;
    });
    combine_all<kThreads>(block, shared.part, [](float one, float other) { return one + other; });
    block.each_thread([&](unsigned t) {
      float const inverse = 1 / shared.part[0];
      for_each_group<kThreads, kGroup>(t, seq, [&](auto lanes, std::uint32_t i) {
        constexpr int kLanes = decltype(lanes)::kLanes;
        auto values = load<kLanes>(in, i);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
          values.x[k] = i + k < used ? std::exp(values.x[k] - largest) * inverse : 0.0F;
        }
        out.store(values, i);
      });
    });
  }
};

/// Gradient of the scores: p·(dp − Σ p·dp), zeros after the row's first t + 1; may be the same memory as p or dp.
struct CausalSoftmaxGradientBody {
  static constexpr unsigned kThreads = 128;
  struct Shared {
    float part[kThreads];
  };

  TensorPointer dscores, dp, p;
  std::uint32_t seq = 0;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    std::uint32_t const used = block.index() % seq + 1;
    Array const gradients = row_of(dp, block.index(), seq);
    Array const probabilities = row_of(p, block.index(), seq);
    Array const out = row_of(dscores, block.index(), seq);
    block.each_thread([&](unsigned t) {
      float sum = 0;
      for_each_group<kThreads, kGroup>(t, used, [&](auto lanes, std::uint32_t i) {
        constexpr int kLanes = decltype(lanes)::kLanes;
        auto const g = load<kLanes>(gradients, i);
        auto const values = load<kLanes>(probabilities, i);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) sum = std::fma(g.x[k], values.x[k], sum);
      });
      shared.part[t] = sum;
    });
    combine_all<kThreads>(block, shared.part, [](float one, float other) { return one + other; });
    block.each_thread([&](unsigned t) {
      float const dot = shared.part[0];
      for_each_group<kThreads, kGroup>(t, seq, [&](auto lanes, std::uint32_t i) {
        constexpr int kLanes = decltype(lanes)::kLanes;
        auto const g = load<kLanes>(gradients, i);
        auto values = load<kLanes>(probabilities, i);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
          values.x[k] = i + k < used ? values.x[k] * (g.x[k] - dot) : 0.0F;
        }
        out.store(values, i);
      });
    });
  }
};

}  // namespace weft::kernels::cuda
