#pragma once

#include <cstdint>

#include "kernels/cuda/chunk.hpp"
#include "kernels/cuda/groups.hpp"
#include "kernels/cuda/lanes.hpp"

namespace weft::kernels::cuda {

// Each launch works on one tensor, given by the kernel's arguments, because its memory may be elsewhere in each step.
// Block b works on elements [b·kChunk, (b + 1)·kChunk).

[[nodiscard]] WEFT_KERNEL inline std::uint32_t elements_of_block(std::uint64_t count, unsigned block) {
  std::uint64_t const left = count - std::uint64_t{block} * kChunk;
  return left < kChunk ? static_cast<std::uint32_t>(left) : kChunk;
}

/// to ← from, rounded to nearest even.
struct ConvertBody {
  static constexpr unsigned kThreads = 256;
  using Shared = Nothing;

  TensorPointer from{};
  TensorPointer to{};
  std::uint64_t count = 0;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    std::uint64_t const first = std::uint64_t{block.index()} * kChunk;
    std::uint32_t const elements = elements_of_block(count, block.index());
    Array const x = Array::from(from.data, from.type, first);
    Array const out = Array::from(to.data, to.type, first);
    block.each_thread([&](unsigned t) {
      for_each_group<kThreads, 4>(t, elements, [&](auto width, std::uint32_t i) {
        out.store(widen(x.template load<decltype(width)::kLanes>(i), x.type), i);
      });
    });
  }
};

/// to ← to + from, of one type, rounded to nearest even.
struct AddBody {
  static constexpr unsigned kThreads = 256;
  using Shared = Nothing;

  TensorPointer from{};
  TensorPointer to{};
  std::uint64_t count = 0;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    std::uint64_t const first = std::uint64_t{block.index()} * kChunk;
    std::uint32_t const elements = elements_of_block(count, block.index());
    Array const x = Array::from(from.data, from.type, first);
    Array const out = Array::from(to.data, to.type, first);
    block.each_thread([&](unsigned t) {
      for_each_group<kThreads, 4>(t, elements, [&](auto width, std::uint32_t i) {
        constexpr int kLanes = decltype(width)::kLanes;
        auto sum = widen(out.template load<kLanes>(i), out.type);
        auto const more = widen(x.template load<kLanes>(i), x.type);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) sum.x[k] += more.x[k];
        out.store(sum, i);
      });
    });
  }
};

/// Error feedback, as in kernels/cpu/optim/compress.hpp: c = gradient + residual; wire ← c, rounded; residual ← c −
/// wire, or 0 if either is not finite.
struct CompressBody {
  static constexpr unsigned kThreads = 256;
  using Shared = Nothing;

  float const* gradient = nullptr;
  float* residual = nullptr;
  TensorPointer wire{};  ///< bf16 or f16
  std::uint64_t count = 0;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    std::uint64_t const first = std::uint64_t{block.index()} * kChunk;
    std::uint32_t const elements = elements_of_block(count, block.index());
    Array const g = Array::from(gradient, DataType::f32, first);
    Array const r = Array::from(residual, DataType::f32, first);
    Array const out = Array::from(wire.data, wire.type, first);
    block.each_thread([&](unsigned t) {
      for_each_group<kThreads, 4>(t, elements, [&](auto width, std::uint32_t i) {
        constexpr int kLanes = decltype(width)::kLanes;
        auto sum = widen(g.template load<kLanes>(i), DataType::f32);
        auto rest = widen(r.template load<kLanes>(i), DataType::f32);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
          sum.x[k] += rest.x[k];
          float const sent = widen(out.type, narrowed(out.type, sum.x[k]));
          rest.x[k] = sent * 0.0F == 0 ? sum.x[k] - sent : 0;
        }
        out.store(sum, i);
        r.store(rest, i);
      });
    });
  }
};

}  // namespace weft::kernels::cuda
