#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace weft::torch_backend {

/// What optimizers keep of parameters: f32 tensors of `sizes` elements, zero, in one piece of memory, which goes with
/// the last of them. On the CPU it lies on huge pages where the machine has them, and each tensor begins with a cache
/// line.
[[nodiscard]] std::vector<at::Tensor> state_memory(std::vector<std::int64_t> const& sizes);

/// On a GPU it is torch's memory, charged to the calling thread's account, and each tensor begins 256 bytes apart.
[[nodiscard]] std::vector<at::Tensor> state_memory_on_gpu(std::vector<std::int64_t> const& sizes, c10::Device device);

}  // namespace weft::torch_backend
