#include "collectives/staged/pinned.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/cuda/check.hpp"
#include "weft/error.hpp"
#include "weft/memory.hpp"

namespace weft::staged {

std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes, int device, cuda::CudaFunctions const& cuda) {
  cuda::DeviceGuard const guard(device, cuda);
  MemoryCharge charge(MemoryScope::current(MemoryKind::communication), bytes);
  void* memory = nullptr;
  cuda::check(cuda, cuda.host_alloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
  std::memset(memory, 0, bytes);
  auto const release = [&cuda, device, held = std::make_shared<MemoryCharge>(std::move(charge))](std::byte* pointer) {
    try {
      cuda::DeviceGuard const there(device, cuda);
      static_cast<void>(cuda.free_host(pointer));
    } catch (Error const&) {  // the context is gone, and the pinning with it
    }
  };
  return {static_cast<std::byte*>(memory), release};
}

std::shared_ptr<std::byte> PinnedPool::take(std::size_t bytes) {
  auto const power =
      std::max<unsigned>(kSmallest, static_cast<unsigned>(std::bit_width(std::max<std::size_t>(bytes, 1) - 1)));
  std::shared_ptr<std::byte> block;
  {
    std::scoped_lock const lock(free_->mutex);
    auto& blocks = free_->blocks[power];
    if (!blocks.empty()) {
      block = std::move(blocks.back());
      blocks.pop_back();
    }
  }
  if (!block) block = allocate_pinned(std::size_t{1} << power, device_, cuda_);
  auto* const memory = block.get();
  return {memory, [block = std::move(block), free = free_, power](std::byte*) mutable {
            std::scoped_lock const lock(free->mutex);
            free->blocks[power].push_back(std::move(block));
          }};
}

Signals::Signals(int device, cuda::CudaFunctions const& cuda)
    : memory_(allocate_pinned(kWords * kApart, device, cuda)) {}

}  // namespace weft::staged
