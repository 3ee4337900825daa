#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace weft::torch_backend {

/// Memory for what optimizers keep about parameters: zero-filled f32 tensors of `sizes` elements, in one piece of
/// memory that is freed with the last of them. On the CPU it uses huge pages if the machine has them, and each tensor
/// begins at a cache line.
[[nodiscard]] std::vector<at::Tensor> state_memory(std::vector<std::int64_t> const& sizes);

/// The same on a GPU: torch's memory, charged to the calling thread's account. Each tensor begins at a multiple of 256
/// bytes.
[[nodiscard]] std::vector<at::Tensor> state_memory_on_gpu(std::vector<std::int64_t> const& sizes, c10::Device device);

}  // namespace weft::torch_backend
