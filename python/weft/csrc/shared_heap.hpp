#pragma once

#include <cstddef>
#include <memory>

#include "weft/shared_heap.hpp"

namespace weft::torch_backend {

/// From now on CPU tensors of kLeastBytes or more lie in a SharedHeap of up to `bytes`, so that collectives reach them
/// where they are. Smaller ones, and all once the heap is full (said once), come from the allocator that was there
/// before. Installing the same size again changes nothing. @throws c10::Error where another size is installed.
void install_heap(std::size_t bytes);
inline constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

/// What WEFT_TORCH_HEAP asks for, or nothing.
void install_heap_from_environment();

/// The heap to hand to communicators; null where none was installed. In a process forked from one that has a heap this
/// makes one of its own, since the parent's serves no child: processes that make no communicator need none.
[[nodiscard]] std::shared_ptr<SharedHeap> installed_heap();

/// The heap of this process as it is; null where there is none, or only the parent's.
[[nodiscard]] std::shared_ptr<SharedHeap> current_heap();

}  // namespace weft::torch_backend
