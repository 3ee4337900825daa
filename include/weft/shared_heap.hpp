#pragma once

#include <cstddef>
#include <memory>

namespace weft {

/// Memory of one rank that its peers can reach: what lies in it counts as symmetric memory, wherever in its heap each
/// rank's buffer lies. For programs that cannot call Communicator::allocate() for every buffer.
///
/// Handed to communicators by CommunicatorOptions::heap; ranks that are threads of one process may share one. Committed
/// as it is used, and never given back to the system before the last owner goes. Any thread, any time.
///
/// While a call sends from it, peers may store what they have read there again, unchanged, as in
/// Communicator::allocate()'s memory.
///
/// A rank that leaves a collective by an Error may still be written to by a peer that is late: do not reuse the call's
/// buffers before the communicators that failed are gone on all ranks.
class SharedHeap {
 public:
  /// Of up to `bytes`, which may exceed the memory there is: only address space is taken now.
  /// @throws Error{invalid_argument|system}
  [[nodiscard]] static std::shared_ptr<SharedHeap> create(std::size_t bytes);
  ~SharedHeap();
  SharedHeap(SharedHeap const&) = delete;
  SharedHeap& operator=(SharedHeap const&) = delete;

  /// A block of at least `bytes`, 64-byte aligned, its content arbitrary; null when the heap is full, the system has no
  /// more memory for it, or this is a forked child.
  [[nodiscard]] void* allocate(std::size_t bytes) noexcept;
  /// Takes a block back for later allocations; null and, in a forked child, any block of the parent's are passed over.
  void deallocate(void* block) noexcept;
  /// Whether `address` lies in the heap, in a block or not.
  [[nodiscard]] bool contains(void const* address) const noexcept;

  struct Usage {
    std::size_t capacity = 0;
    std::size_t committed = 0;  ///< bytes that the system has given
    std::size_t in_use = 0;     ///< bytes of blocks
    std::size_t withheld = 0;   ///< bytes of freed blocks that a forked child may still read
  };
  [[nodiscard]] Usage usage() const;

  /// To be called around fork(), e.g. from pthread_atfork handlers. The child sees the heap as it is. What it writes is
  /// its own: it gets its own copy of a page with its first write to it, and until then sees what the parent or its
  /// peers write there. It allocates nothing more, and its communicators do without the heap. The parent does not reuse
  /// blocks of that time while the child, or a child of the child's, lives.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

  class Impl;
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  explicit SharedHeap(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
