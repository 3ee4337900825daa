#pragma once

#include <cstddef>
#include <memory>

#include "weft/shared_heap.hpp"

namespace weft::torch_backend {

/// From now on CPU tensors of kLeastBytes or more are allocated in a SharedHeap of up to `bytes`, so that collectives
/// reach them in place. Smaller tensors, and all tensors once the heap is full (reported once), come from the previous
/// allocator. Installing the same size again changes nothing. @throws c10::Error if another size is installed.
void install_heap(std::size_t bytes);
inline constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

/// Installs the heap that WEFT_TORCH_HEAP asks for, if it is set.
void install_heap_from_environment();

/// The heap to pass to communicators; null if none was installed. In a process forked from one with a heap, this makes
/// a new heap, because a child cannot use its parent's. It does so only here because processes that make no
/// communicator need none.
[[nodiscard]] std::shared_ptr<SharedHeap> installed_heap();

/// This process's heap; null if there is none, or only the parent's.
[[nodiscard]] std::shared_ptr<SharedHeap> current_heap();

}  // namespace weft::torch_backend
