#pragma once

#include <cuda_runtime_api.h>

namespace weft::cuda {

/// Throws Error{out_of_memory} or Error{system} that names `call` and CUDA's reason, unless `status` is cudaSuccess.
void check(cudaError_t status, char const* call);

/// Makes `device` current while it lives. @throws Error{invalid_argument} for a device that is not there.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(DeviceGuard const&) = delete;
  DeviceGuard& operator=(DeviceGuard const&) = delete;

 private:
  int previous_ = 0;
};

}  // namespace weft::cuda
