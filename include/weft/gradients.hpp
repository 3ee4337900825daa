#pragma once

#include <span>

#include "weft/buffer.hpp"

namespace weft {

// Of gradients of one rank (of all: weft/sharded_gradients.hpp), in f32, bf16 or f16 on the CPU or on one GPU, computed
// in f32 and summed in double. On a GPU they wait for all of its work, before and after; cuda::GradientList does not.
// Thread-safe on different gradients. @throws Error{unsupported} for another type or device,
// Error{invalid_argument} for one without memory.

enum class NormType { l2, inf };

struct GradientNorm {
  double norm = 0;     ///< of all gradients as one vector; unspecified where not finite
  bool finite = true;  ///< no element is infinite or NaN
};

/// Of factor·g, with factor 1 / loss scale; changes nothing.
[[nodiscard]] GradientNorm gradient_norm(std::span<BufferView const> gradients, NormType type = NormType::l2,
                                         float factor = 1);

/// What brings gradients of `norm` to at most `max_norm`: min(1, max_norm / (norm + 1e-6)), as
/// torch.nn.utils.clip_grad_norm_ has it. For StepInputs::clip. @throws Error{invalid_argument} for a max_norm that is
/// not above 0.
[[nodiscard]] float clip_factor(double norm, double max_norm);

/// g ← g · clip_factor(). Returns the norm before; not finite gradients are left as they are.
GradientNorm clip_grad_norm(std::span<BufferView const> gradients, double max_norm, NormType type = NormType::l2);
/// g ← g within [−limit, limit]; NaN stays. @throws Error{invalid_argument} for a limit below 0.
void clip_grad_value(std::span<BufferView const> gradients, float limit);

/// g ← inv_scale·g, and found_inf ← 1 if an element was not finite (else it is left as it is).
void unscale_and_check(std::span<BufferView const> gradients, float inv_scale, float& found_inf);

}  // namespace weft
