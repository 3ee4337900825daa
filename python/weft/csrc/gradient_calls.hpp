#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/buffer.hpp"
#include "weft/gradients.hpp"

namespace weft::torch_backend {

/// A dense tensor's memory, on any device. @throws as gradient_view(), except for the device.
[[nodiscard]] BufferView dense_view(at::Tensor const& tensor, std::size_t index, char const* call);

/// A gradient's memory. @throws c10::ValueError or c10::TypeError, saying which and what to do, unless it is a dense
/// f32, bf16 or f16 tensor on the CPU whose elements lie without gaps.
[[nodiscard]] BufferView gradient_view(at::Tensor const& gradient, std::size_t index, char const* call);

/// Σ(factor·g)² or max |factor·g| of all gradients, and whether every element is finite; by torch's threads. The result
/// does not depend on their number. @throws as gradient_view().
[[nodiscard]] std::pair<double, bool> measure_gradients(std::vector<at::Tensor> const& gradients, NormType type,
                                                        float factor, char const* call);

/// g ← factor·g, rounded once, and whether every element of factor·g is finite. @throws as gradient_view().
bool scale_gradients(std::vector<at::Tensor> const& gradients, float factor, char const* call);

}  // namespace weft::torch_backend
