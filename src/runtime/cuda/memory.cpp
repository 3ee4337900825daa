#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_stream.hpp"
#include "runtime/cuda/memory_pool.hpp"
#include "weft/cuda.hpp"
#include "weft/error.hpp"
#include "weft/event.hpp"
#include "weft/memory.hpp"

namespace weft::cuda {
namespace {

std::string describe(ConstBufferView const& view) {
  return std::to_string(view.count) + " " + std::string(to_string(view.dtype)) + " on " + to_string(view.device);
}

/// Bytes to allocate: at least one, so that memory is never null and every view has an address.
std::size_t bytes_of(std::size_t count, DataType dtype) {
  if (!is_valid(dtype)) {
    throw Error(ErrorCode::invalid_argument,
                "cuda::allocate: " + std::to_string(static_cast<int>(dtype)) + " is no DataType");
  }
  if (count > std::numeric_limits<std::size_t>::max() / size_of(dtype)) {
    throw Error(ErrorCode::out_of_memory,
                "cuda::allocate: " + std::to_string(count) + " elements exceed the address space");
  }
  return std::max<std::size_t>(count * size_of(dtype), 1);
}

CudaStream& cuda_stream_of(Stream const& stream, char const* function) {
  if (CudaStream* const cuda = as_cuda(stream)) return *cuda;
  throw Error(ErrorCode::invalid_argument, std::string(function) + ": the stream is on " + to_string(stream.device()));
}

/// Frees memory in the order of the stream that it came from, after what other streams do with it.
class StreamOrderedFree {
 public:
  StreamOrderedFree(Stream stream, MemoryCharge charge, std::shared_ptr<MemoryPool::Impl const> pool)
      : stream_(std::move(stream)), charge_(std::move(charge)), pool_(std::move(pool)) {}

  // Freeing fails only where the context is gone, and its memory with it.
  void operator()(void* memory) noexcept {
    auto const& on = *as_cuda(stream_);
    try {
      DefaultStreamGuard const guard(on);
      for (auto const& use : *uses_) use.last.wait_on(stream_);
      check(on.cuda(), on.cuda().free_async(memory, on.handle()), "cudaFreeAsync");
    } catch (Error const&) {  // the context is gone
    }
  }

  void use_on(Stream const& stream) const {
    std::scoped_lock const lock(*mutex_);
    auto const handle = handle_of(stream);
    auto known = std::find_if(uses_->begin(), uses_->end(), [&](Use const& use) { return use.handle == handle; });
    if (known == uses_->end()) known = uses_->insert(known, {handle, Event()});
    known->last.record(stream);
  }
  void free_on(Stream const& stream) { stream_ = stream; }
  [[nodiscard]] Device device() const noexcept { return stream_.device(); }

 private:
  struct Use {
    cudaStream_t handle;
    Event last;
  };

  Stream stream_;
  MemoryCharge charge_;
  std::shared_ptr<MemoryPool::Impl const> pool_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  std::unique_ptr<std::vector<Use>> uses_ = std::make_unique<std::vector<Use>>();
};

/// `take(memory, bytes, stream)` is cudaMallocAsync or its like.
template <typename Take>
Buffer allocate_in_order(std::size_t count, DataType dtype, Stream const& stream,
                         std::shared_ptr<MemoryPool::Impl const> pool, Take const& take) {
  auto const bytes = bytes_of(count, dtype);
  auto const& on = cuda_stream_of(stream, "cuda::allocate");
  auto const& cuda = on.cuda();
  DeviceGuard const guard(on.device().index, cuda);
  StreamOrderedFree release(stream, MemoryCharge(MemoryScope::current(), bytes), std::move(pool));
  void* memory = nullptr;
  check(cuda, take(cuda, &memory, bytes, on.handle()), "cudaMallocAsync");
  std::shared_ptr<void> owner(memory, std::move(release));
  check(cuda, cuda.memset_async(memory, 0, bytes, on.handle()), "cudaMemsetAsync");
  return {std::move(owner), count, dtype, on.device()};
}

}  // namespace

Buffer allocate(std::size_t count, DataType dtype, int device, CudaFunctions const& cuda) {
  auto const bytes = bytes_of(count, dtype);
  DeviceGuard const guard(device, cuda);
  MemoryCharge charge(MemoryScope::current(), bytes);
  void* memory = nullptr;
  check(cuda, cuda.malloc(&memory, bytes), "cudaMalloc");
  std::shared_ptr<void> owner(memory, [&cuda](void* pointer) { static_cast<void>(cuda.free(pointer)); });
  check(cuda, cuda.memset_async(memory, 0, bytes, nullptr), "cudaMemsetAsync");
  check(cuda, cuda.stream_synchronize(nullptr), "cudaStreamSynchronize");
  return {hold_charge(std::move(owner), std::move(charge)), count, dtype, {DeviceType::cuda, device}};
}

Buffer allocate(std::size_t count, DataType dtype, int device) {
  return allocate(count, dtype, device, cuda_runtime());
}

Buffer allocate_pinned(std::size_t count, DataType dtype) {
  auto const bytes = bytes_of(count, dtype);
  auto const& cuda = cuda_runtime();
  MemoryCharge charge(MemoryScope::current(), bytes);
  void* memory = nullptr;
  check(cuda, cuda.host_alloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
  std::shared_ptr<void> owner(memory, [&cuda](void* pointer) { static_cast<void>(cuda.free_host(pointer)); });
  std::memset(memory, 0, bytes);
  return {hold_charge(std::move(owner), std::move(charge)), count, dtype, {}};
}

Buffer allocate(std::size_t count, DataType dtype, Stream const& stream) {
  return allocate_in_order(count, dtype, stream, nullptr,
                           [](CudaFunctions const& cuda, void** memory, std::size_t bytes, cudaStream_t on) {
                             return cuda.malloc_async(memory, bytes, on);
                           });
}

namespace {

StreamOrderedFree& release_of(Buffer const& buffer, Stream const& stream, char const* call) {
  auto* const release = std::get_deleter<StreamOrderedFree>(buffer.owner());
  if (release == nullptr) {
    throw Error(ErrorCode::invalid_argument, std::string(call) + ": the buffer, " + describe(buffer.view()) +
                                                 ", was not allocated in a stream's order");
  }
  auto const& on = cuda_stream_of(stream, call);
  if (on.device() != release->device()) {
    throw Error(ErrorCode::invalid_argument, std::string(call) + ": the stream is on " + to_string(on.device()) +
                                                 ", the buffer on " + to_string(release->device()));
  }
  return *release;
}

}  // namespace

void use_on(Buffer const& buffer, Stream const& stream) {
  release_of(buffer, stream, "cuda::use_on").use_on(stream);
}

void free_on(Buffer const& buffer, Stream const& stream) {
  release_of(buffer, stream, "cuda::free_on").free_on(stream);
}

MemoryPool::MemoryPool(int device, std::size_t keep_bytes)
    : impl_(std::make_shared<Impl const>(device, keep_bytes, cuda_runtime())) {}
Buffer MemoryPool::allocate(std::size_t count, DataType dtype, Stream const& stream) const {
  return impl_->allocate(count, dtype, stream);
}
MemoryPool::Usage MemoryPool::usage() const {
  return impl_->usage();
}
void MemoryPool::trim(std::size_t keep_bytes) const {
  impl_->trim(keep_bytes);
}

MemoryPool::Impl::Impl(int device, std::size_t keep_bytes, CudaFunctions const& cuda) : device_(device), cuda_(cuda) {
  DeviceGuard const guard(device, cuda);
  cudaMemPoolProps wanted{};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.location.type = cudaMemLocationTypeDevice;
  wanted.location.id = device;
  check(cuda, cuda.mem_pool_create(&pool_, &wanted), "cudaMemPoolCreate");
  std::uint64_t threshold = keep_bytes;
  auto const status = cuda.mem_pool_set_attribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold);
  if (status != cudaSuccess) static_cast<void>(cuda.mem_pool_destroy(pool_));
  check(cuda, status, "cudaMemPoolSetAttribute");
}

// CUDA keeps the pool for frees that are still queued.
MemoryPool::Impl::~Impl() {
  static_cast<void>(cuda_.mem_pool_destroy(pool_));
}

Buffer MemoryPool::Impl::allocate(std::size_t count, DataType dtype, Stream const& stream) const {
  if (stream.device() != Device{DeviceType::cuda, device_}) {
    throw Error(ErrorCode::invalid_argument, "cuda::MemoryPool: the pool is on cuda:" + std::to_string(device_) +
                                                 ", the stream on " + to_string(stream.device()));
  }
  return allocate_in_order(count, dtype, stream, shared_from_this(),
                           [this](CudaFunctions const& cuda, void** memory, std::size_t bytes, cudaStream_t on) {
                             return cuda.malloc_from_pool_async(memory, bytes, pool_, on);
                           });
}

MemoryPool::Usage MemoryPool::Impl::usage() const {
  std::uint64_t used = 0;
  std::uint64_t reserved = 0;
  check(cuda_, cuda_.mem_pool_get_attribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used), "cudaMemPoolGetAttribute");
  check(cuda_, cuda_.mem_pool_get_attribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved),
        "cudaMemPoolGetAttribute");
  return {used, reserved};
}

void MemoryPool::Impl::trim(std::size_t keep_bytes) const {
  check(cuda_, cuda_.mem_pool_trim_to(pool_, keep_bytes), "cudaMemPoolTrimTo");
}

void copy(BufferView dst, ConstBufferView src, Stream const& stream) {
  if (dst.count != src.count || dst.dtype != src.dtype) {
    throw Error(ErrorCode::invalid_argument,
                "cuda::copy: destination is " + describe(dst) + ", source " + describe(src));
  }
  cuda_stream_of(stream, "cuda::copy").copy(dst.data, src.data, src.bytes());
}

}  // namespace weft::cuda
