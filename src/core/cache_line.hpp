#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft {

inline constexpr std::size_t kLine = 64;  ///< cache line, bytes
inline constexpr std::size_t kLinePair =
    128;  ///< some processors fetch two lines together, so words of different ranks lie this far apart

/// Asks for ownership of the cache line at `address`, so that a store to it soon does not wait until the peers have
/// given their copies up.
inline void prefetch_for_write(void const* address) noexcept {
#if defined(__x86_64__)
  // The builtin gives a read prefetch unless the whole file is compiled for PREFETCHW; processors without it ignore it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<char const*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

/// The same for every line that [address, address + bytes) touches.
inline void prefetch_for_write(std::byte const* address, std::size_t bytes) noexcept {
  auto const* line = address - reinterpret_cast<std::uintptr_t>(address) % kLine;
  for (; line < address + bytes; line += kLine) prefetch_for_write(line);
}

/// Asks for a copy of every line that [address, address + bytes) touches.
inline void prefetch_for_read(std::byte const* address, std::size_t bytes) noexcept {
  auto const* line = address - reinterpret_cast<std::uintptr_t>(address) % kLine;
  for (; line < address + bytes; line += kLine) __builtin_prefetch(line);
}

/// Orders every earlier store before every later load, and lets no later load start before.
inline void full_fence() noexcept {
#if defined(__x86_64__)
  // A locked instruction, which std::atomic_thread_fence() may become, lets later loads run ahead speculatively.
  asm volatile("mfence" : : : "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace weft
