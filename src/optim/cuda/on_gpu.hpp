#pragma once

#include <algorithm>
#include <span>

#include "optim/gradient_parts.hpp"
#include "weft/buffer.hpp"
#include "weft/gradients.hpp"
#include "weft/stream.hpp"

/// The functions of weft/gradients.hpp and weft/convert.hpp for tensors on GPUs. They refuse tensors that are not on
/// the first one's GPU.
namespace weft::cuda::on_gpu {

[[nodiscard]] NormParts measure_parts(std::span<BufferView const> gradients, NormType type, float factor);
void scale(std::span<BufferView const> gradients, float factor);
void clamp(std::span<BufferView const> gradients, float limit);
void unscale_and_check(std::span<BufferView const> gradients, float inv_scale, float& found_inf);
void convert(BufferView from, BufferView to);

// The next three make one launch on `stream`, with views on its GPU; they wait for nothing, allocate nothing and keep
// nothing.

/// to ← from, as many elements, rounded to nearest even.
void convert(BufferView const& from, BufferView const& to, Stream const& stream);
/// to ← to + from, as many elements of one type, each sum in f32.
void add(BufferView const& from, BufferView const& to, Stream const& stream);
/// As kernels::compress_with_feedback(); `wire` is bf16 or f16.
void compress_with_feedback(BufferView const& gradient, BufferView const& residual, BufferView const& wire,
                            Stream const& stream);

/// Whether these functions are for such a list; never in a library without CUDA.
[[nodiscard]] inline bool takes([[maybe_unused]] std::span<BufferView const> tensors) {
#ifdef WEFT_CUDA_TRAINING
  return std::ranges::any_of(tensors, [](auto const& one) { return one.device.type == DeviceType::cuda; });
#else
  return false;
#endif
}

}  // namespace weft::cuda::on_gpu
