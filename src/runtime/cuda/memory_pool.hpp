#pragma once

#include <cstddef>

#include "runtime/cuda/cuda_functions.hpp"
#include "weft/cuda.hpp"

namespace weft::cuda {

/// A cudaMemPool_t, destroyed once the last memory from it is freed.
class MemoryPool::Impl : public std::enable_shared_from_this<MemoryPool::Impl> {
 public:
  Impl(int device, std::size_t keep_bytes, CudaFunctions const& cuda);
  ~Impl();
  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  [[nodiscard]] Buffer allocate(std::size_t count, DataType dtype, Stream const& stream) const;
  [[nodiscard]] Usage usage() const;
  void trim(std::size_t keep_bytes) const;

 private:
  int const device_;
  CudaFunctions const& cuda_;
  cudaMemPool_t pool_ = nullptr;
};

/// Has `buffer`, which was allocated in a stream's order, freed in the order of `stream` instead. What any other stream
/// does with it is then the caller's concern, or use_on()'s. @throws Error{invalid_argument} as use_on().
void free_on(Buffer const& buffer, Stream const& stream);

/// cuda::allocate() by means of `cuda`, a table of functions.
[[nodiscard]] Buffer allocate(std::size_t count, DataType dtype, int device, CudaFunctions const& cuda);

}  // namespace weft::cuda
