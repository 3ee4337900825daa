#include "weft/gradients.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/optim/gradients.hpp"
#include "kernels/math/clip.hpp"
#include "optim/cuda/on_gpu.hpp"
#include "optim/gradient_parts.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

void check_gradients(std::span<BufferView const> gradients) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    auto const& gradient = gradients[i];
    auto const computable =
        gradient.dtype == DataType::f32 || gradient.dtype == DataType::bf16 || gradient.dtype == DataType::f16;
    if (!computable || gradient.device.type != DeviceType::cpu) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("gradient {} is {} on {}; norms and clipping take f32, bf16 and f16 on cpu", i,
                              to_string(gradient.dtype), to_string(gradient.device)));
    }
    if (gradient.data == nullptr && gradient.count > 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("gradient {} has {} elements but no memory", i, gradient.count));
    }
  }
}

}  // namespace

NormParts parts_of(BufferView const& gradient, NormType type, float factor) {
  auto const one = kernels::measure_gradient(gradient.data, gradient.count, gradient.dtype, factor);
  if (!one.finite) return {0, 1};
  return {type == NormType::l2 ? one.sum_of_squares : static_cast<double>(one.largest), 0};
}

void add(NormParts& parts, NormParts const& more, NormType type) noexcept {
  parts.norm = type == NormType::l2 ? parts.norm + more.norm : std::max(parts.norm, more.norm);
  parts.not_finite = std::max(parts.not_finite, more.not_finite);
}

NormParts measure_parts(std::span<BufferView const> gradients, NormType type, float factor) {
#ifdef WEFT_CUDA_TRAINING
  if (cuda::on_gpu::takes(gradients)) return cuda::on_gpu::measure_parts(gradients, type, factor);
#endif
  check_gradients(gradients);
  NormParts parts;
  for (auto const& gradient : gradients) add(parts, parts_of(gradient, type, factor), type);
  return parts;
}

GradientNorm norm_of(NormParts const& parts, NormType type) {
  return {type == NormType::l2 ? std::sqrt(parts.norm) : parts.norm, parts.not_finite == 0};
}

void scale_by_clip(std::span<BufferView const> gradients, GradientNorm const& norm, double max_norm) {
  float const factor = clip_factor(norm.norm, max_norm);
  if (!norm.finite || factor == 1) return;
#ifdef WEFT_CUDA_TRAINING
  if (cuda::on_gpu::takes(gradients)) return cuda::on_gpu::scale(gradients, factor);
#endif
  for (auto const& gradient : gradients) kernels::scale(gradient.data, gradient.count, gradient.dtype, factor);
}

GradientNorm gradient_norm(std::span<BufferView const> gradients, NormType type, float factor) {
  return norm_of(measure_parts(gradients, type, factor), type);
}

float clip_factor(double norm, double max_norm) {
  if (!(max_norm > 0)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("clipping: max_norm is {}; it must be above 0", max_norm));
  }
  return kernels::clip_factor(norm, max_norm);
}

GradientNorm clip_grad_norm(std::span<BufferView const> gradients, double max_norm, NormType type) {
  static_cast<void>(clip_factor(0, max_norm));  // refused before anything is read
  auto const norm = gradient_norm(gradients, type);
  scale_by_clip(gradients, norm, max_norm);
  return norm;
}

void clip_grad_value(std::span<BufferView const> gradients, float limit) {
  if (!(limit >= 0)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("clipping: limit is {}; it must be at least 0", limit));
  }
#ifdef WEFT_CUDA_TRAINING
  if (cuda::on_gpu::takes(gradients)) return cuda::on_gpu::clamp(gradients, limit);
#endif
  check_gradients(gradients);
  for (auto const& gradient : gradients) kernels::clamp(gradient.data, gradient.count, gradient.dtype, limit);
}

void unscale_and_check(std::span<BufferView const> gradients, float inv_scale, float& found_inf) {
#ifdef WEFT_CUDA_TRAINING
  if (cuda::on_gpu::takes(gradients)) return cuda::on_gpu::unscale_and_check(gradients, inv_scale, found_inf);
#endif
  check_gradients(gradients);
  for (auto const& gradient : gradients) {
    if (!kernels::scale_and_check(gradient.data, gradient.count, gradient.dtype, inv_scale)) found_inf = 1;
  }
}

}  // namespace weft
