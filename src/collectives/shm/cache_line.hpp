#pragma once

namespace weft::shm {

/// Asks for ownership of the cache line at `address`, so that a store to it soon does not wait for the peers' copies to
/// go.
inline void prefetch_for_write(void const* address) noexcept {
#if defined(__x86_64__)
  // The builtin gives a read prefetch unless the whole file is compiled for PREFETCHW; processors without it ignore it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<char const*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace weft::shm
