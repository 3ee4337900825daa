#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/chunk.hpp"
#include "kernels/cuda/groups.hpp"
#include "kernels/cuda/lanes.hpp"
#include "kernels/math/clip.hpp"

namespace weft::kernels::cuda {

/// What has been measured of some elements.
struct Measured {
  double squares = 0;
  float largest = 0;  ///< magnitude; unspecified where not finite
  std::uint32_t not_finite = 0;

  WEFT_KERNEL void add(float g) {
    squares = std::fma(static_cast<double>(g), static_cast<double>(g), squares);
    float const magnitude = std::fabs(g);
    if (magnitude > largest) largest = magnitude;
    if (!(g * 0.0F == 0)) not_finite = 1;
  }
  WEFT_KERNEL void add(Measured const& other) {
    squares += other.squares;
    if (other.largest > largest) largest = other.largest;
    not_finite |= other.not_finite;
  }
};

/// The parts of a block's threads.
struct MeasuredShared {
  Measured part[256];
};

template <typename Block>
WEFT_KERNEL void combine_measured(Block& block, MeasuredShared& shared) {
  combine_all<256>(block, shared.part, [](Measured a, Measured const& b) {
    a.add(b);
    return a;
  });
}

// Three launches measure a list of tensors: first its chunks, then each tensor, then the whole list. The order of every
// sum depends only on the tensors' sizes, so results have the same bits every time.

/// Measures factor·x of each chunk, in double; one block per chunk.
struct MeasureChunksBody {
  static constexpr unsigned kThreads = 256;
  using Shared = MeasuredShared;

  TensorPointer const* tensors = nullptr;
  Chunk const* chunks = nullptr;
  Scalar factor;
  Measured* of_chunk = nullptr;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    Chunk const chunk = chunks[block.index()];
    TensorPointer const& tensor = tensors[chunk.tensor];
    Array const x = Array::from(tensor.data, tensor.type, chunk.first);
    float const by = factor.get();
    block.each_thread([&](unsigned t) {
      Measured own{};
      auto const visit = [&](auto width, std::uint32_t i) {
        auto const values = widen(x.template load<decltype(width)::kLanes>(i), x.type);
        WEFT_UNROLL for (float const value : values.x) own.add(value * by);
      };
      if (x.narrow()) {
        for_each_group<kThreads, 8>(t, chunk.count, visit);
      } else {
        for_each_group<kThreads, 4>(t, chunk.count, visit);
      }
      shared.part[t] = own;
    });
    combine_measured(block, shared);
    block.each_thread([&](unsigned t) {
      if (t == 0) of_chunk[block.index()] = shared.part[0];
    });
  }
};

/// Consecutive parts that make up one part of the next level.
struct PartRange {
  std::uint32_t first;
  std::uint32_t count;
};

/// Combines each range of parts; one block per range.
struct MeasureRangesBody {
  static constexpr unsigned kThreads = 256;
  using Shared = MeasuredShared;

  Measured const* parts = nullptr;
  PartRange const* ranges = nullptr;
  Measured* out = nullptr;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    PartRange const range = ranges[block.index()];
    block.each_thread([&](unsigned t) {
      Measured own{};
      for (std::uint32_t k = t; k < range.count; k += kThreads) own.add(parts[range.first + k]);
      shared.part[t] = own;
    });
    combine_measured(block, shared);
    block.each_thread([&](unsigned t) {
      if (t == 0) out[block.index()] = shared.part[0];
    });
  }
};

/// The measure of the whole list.
struct MeasuredList {
  double norm = 0;     ///< l2, or the largest magnitude; unspecified where not finite
  double squares = 0;  ///< their sum
  float norm_f32 = 0;
  float clip = 1;  ///< the factor that brings the norm to at most max_norm; 1 where not finite
  std::uint32_t not_finite = 0;
};

/// Combines the parts of `count` tensors; one block.
struct MeasureListBody {
  static constexpr unsigned kThreads = 256;
  using Shared = MeasuredShared;

  Measured const* parts = nullptr;
  std::uint32_t count = 0;
  bool largest = false;  ///< the largest magnitude instead of l2
  double max_norm = 0;   ///< 0: no clipping
  MeasuredList* out = nullptr;
  float* found_inf = nullptr;  ///< becomes 1 where not finite; may be null

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    block.each_thread([&](unsigned t) {
      Measured own{};
      for (std::uint32_t k = t; k < count; k += kThreads) own.add(parts[k]);
      shared.part[t] = own;
    });
    combine_measured(block, shared);
    block.each_thread([&](unsigned t) {
      if (t != 0) return;
      Measured const& whole = shared.part[0];
      MeasuredList list{};
      list.norm = largest ? static_cast<double>(whole.largest) : std::sqrt(whole.squares);
      list.squares = whole.squares;
      list.norm_f32 = static_cast<float>(list.norm);
      list.not_finite = whole.not_finite;
      list.clip = max_norm > 0 && whole.not_finite == 0 ? clip_factor(list.norm, max_norm) : 1.0F;
      *out = list;
      if (found_inf != nullptr && whole.not_finite != 0) *found_inf = 1;
    });
  }
};

}  // namespace weft::kernels::cuda
