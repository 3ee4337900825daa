#include "runtime/cuda/check.hpp"

#include <string>

#include "weft/cuda.hpp"
#include "weft/error.hpp"

namespace weft::cuda {

void check(cudaError_t status, char const* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next launch would report this failure again
  auto const code = status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::system;
  throw Error(code, std::string(call) + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

DeviceGuard::DeviceGuard(int device) {
  int const devices = device_count();
  if (device < 0 || device >= devices) {
    throw Error(ErrorCode::invalid_argument, "cuda:" + std::to_string(device) + " is not there: this process can use " +
                                                 std::to_string(devices) + " GPUs");
  }
  check(cudaGetDevice(&previous_), "cudaGetDevice");
  check(cudaSetDevice(device), "cudaSetDevice");
}

// Cannot fail for a device that was current before; if it does all the same, the next checked call reports it.
DeviceGuard::~DeviceGuard() {
  static_cast<void>(cudaSetDevice(previous_));
}

int device_count() {
  int count = 0;
  cudaError_t const status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    cudaGetLastError();
    return 0;
  }
  check(status, "cudaGetDeviceCount");
  return count;
}

}  // namespace weft::cuda
