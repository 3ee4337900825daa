#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/gradients.hpp"

/// gradient_calls.hpp for gradients on a GPU. Results stay there: numbers are f32 tensors of one element on the
/// gradients' device, and calls only enqueue on torch's current stream. The first call with a list of sizes on a stream
/// allocates and waits, so run a call once before capturing it in a CUDA graph. Any thread.
/// @throws as gradient_view(), and c10::ValueError for gradients on several devices.
namespace weft::torch_backend {

/// The address at which a kernel reads or writes a number. @throws c10::ValueError unless `one` is one float32 on
/// `device`.
[[nodiscard]] float* number_on_gpu(at::Tensor const& one, c10::Device device, char const* call, char const* name);

struct MeasuredOnGpu {
  at::Tensor norm;  ///< of inv_scale·g; unspecified where it is not finite
  at::Tensor clip;  ///< the factor that brings the norm to at most max_norm; 1 for a max_norm of 0
};

/// Sets `found_inf` to 1 if an element is not finite; otherwise leaves it as it is.
[[nodiscard]] MeasuredOnGpu measure_on_gpu(std::vector<at::Tensor> const& gradients, NormType type,
                                           std::optional<at::Tensor> const& inv_scale, double max_norm,
                                           at::Tensor const& found_inf, char const* call);

/// g ← factor·g, rounded once; with `found_inf` as above.
void scale_on_gpu(std::vector<at::Tensor> const& gradients, at::Tensor const& factor,
                  std::optional<at::Tensor> const& found_inf, char const* call);

}  // namespace weft::torch_backend
