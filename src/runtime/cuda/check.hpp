#pragma once

#include "runtime/cuda/cuda_functions.hpp"

namespace weft::cuda {

/// Throws Error{out_of_memory} or Error{system} that names `call` and CUDA's reason, unless `status` is cudaSuccess.
void check(CudaFunctions const& cuda, cudaError_t status, char const* call);
/// The same for the runtime that Weft is linked with.
inline void check(cudaError_t status, char const* call) {
  if (status != cudaSuccess) [[unlikely]]
    check(cuda_runtime(), status, call);
}

/// Whether the GPU has come to `event`, or its stream has failed. Leaves no error behind: to CUDA "not ready" is an
/// error, which the next launch would report.
[[nodiscard]] inline bool is_reached(CudaFunctions const& cuda, cudaEvent_t event) noexcept {
  if (cuda.event_query(event) != cudaErrorNotReady) return true;
  cuda.get_last_error();
  return false;
}

/// Makes `device` current while it lives. Afterwards the device before becomes current again only if the process uses
/// that: else becoming current would make a context on it, from every rank of a host on GPU 0.
/// @throws Error{invalid_argument} for a device that is not there.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device, CudaFunctions const& cuda = cuda_runtime());
  ~DeviceGuard();
  DeviceGuard(DeviceGuard const&) = delete;
  DeviceGuard& operator=(DeviceGuard const&) = delete;

 private:
  CudaFunctions const& cuda_;
  int previous_ = 0;
  bool changes_ = true;
};

}  // namespace weft::cuda
