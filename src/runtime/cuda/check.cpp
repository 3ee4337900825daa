#include "runtime/cuda/check.hpp"

#include <string>

#include "weft/cuda.hpp"
#include "weft/error.hpp"

namespace weft::cuda {
namespace {

int count_devices(CudaFunctions const& cuda) {
  int count = 0;
  cudaError_t const status = cuda.get_device_count(&count);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    cuda.get_last_error();
    return 0;
  }
  check(cuda, status, "cudaGetDeviceCount");
  return count;
}

}  // namespace

void check(CudaFunctions const& cuda, cudaError_t status, char const* call) {
  if (status == cudaSuccess) return;
  cuda.get_last_error();  // or the next launch would report this failure again
  auto const code = status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::system;
  throw Error(code,
              std::string(call) + ": " + cuda.get_error_string(status) + " (" + cuda.get_error_name(status) + ")");
}

// Every launch makes one, and nearly always its device is current.
DeviceGuard::DeviceGuard(int device, CudaFunctions const& cuda) : cuda_(cuda) {
  auto const asked = cuda.get_device(&previous_);
  changes_ = asked != cudaSuccess || previous_ != device;
  if (!changes_) return;
  if (asked != cudaSuccess) cuda.get_last_error();
  int const devices = count_devices(cuda);
  if (device < 0 || device >= devices) {
    throw Error(ErrorCode::invalid_argument, "cuda:" + std::to_string(device) + " is not there: this process can use " +
                                                 std::to_string(devices) + " GPUs");
  }
  check(cuda, asked, "cudaGetDevice");
  check(cuda, cuda.set_device(device), "cudaSetDevice");
}

// Cannot fail for a device that was current before; if it does all the same, the next checked call reports it.
DeviceGuard::~DeviceGuard() {
  if (changes_ && cuda_.has_context(previous_)) static_cast<void>(cuda_.set_device(previous_));
}

int device_count() {
  return count_devices(cuda_runtime());
}

}  // namespace weft::cuda
