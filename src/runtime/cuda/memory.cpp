#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "runtime/cuda/check.hpp"
#include "weft/cuda.hpp"
#include "weft/error.hpp"

namespace weft::cuda {
namespace {

std::string describe(ConstBufferView const& view) {
  return std::to_string(view.count) + " " + std::string(to_string(view.dtype)) + " on " + to_string(view.device);
}

}  // namespace

Buffer allocate(std::size_t count, DataType dtype, int device) {
  if (!is_valid(dtype)) {
    throw Error(ErrorCode::invalid_argument,
                "cuda::allocate: " + std::to_string(static_cast<int>(dtype)) + " is no DataType");
  }
  if (count > std::numeric_limits<std::size_t>::max() / size_of(dtype)) {
    throw Error(ErrorCode::out_of_memory,
                "cuda::allocate: " + std::to_string(count) + " elements exceed the address space");
  }
  DeviceGuard const guard(device);
  std::size_t const bytes =
      std::max<std::size_t>(count * size_of(dtype), 1);  // never null, so that every view has an address
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  std::shared_ptr<void> owner(memory, [](void* pointer) { static_cast<void>(cudaFree(pointer)); });
  check(cudaMemset(memory, 0, bytes), "cudaMemset");
  // cudaMemset of device memory returns before it is done, and streams made here do not wait for the default stream.
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  return {std::move(owner), count, dtype, {DeviceType::cuda, device}};
}

void copy(BufferView dst, ConstBufferView src, Stream const& stream) {
  if (dst.count != src.count || dst.dtype != src.dtype) {
    throw Error(ErrorCode::invalid_argument,
                "cuda::copy: destination is " + describe(dst) + ", source " + describe(src));
  }
  StreamHandle const handle = handle_of(stream);
  if (src.count == 0) return;
  DeviceGuard const guard(stream.device().index);
  check(cudaMemcpyAsync(dst.data, src.data, src.bytes(), cudaMemcpyDefault, handle), "cudaMemcpyAsync");
}

}  // namespace weft::cuda
