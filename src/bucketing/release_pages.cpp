#include "bucketing/release_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace weft {
namespace {

void release(std::byte* first, std::byte* last) noexcept {
  auto const page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  auto const before = -reinterpret_cast<std::uintptr_t>(first) % page;  // bytes up to the next page
  auto const after = reinterpret_cast<std::uintptr_t>(last) % page;
  auto const bytes = static_cast<std::uintptr_t>(last - first);
  // MADV_REMOVE frees shared memory for all processes that map it; it fails for private memory.
  if (bytes < before + after + page || madvise(first + before, bytes - before - after, MADV_REMOVE) != 0) {
    std::memset(first, 0, bytes);
    return;
  }
  std::memset(first, 0, before);
  std::memset(last - after, 0, after);
}

}  // namespace

void release_outside(BufferView const& whole, BufferView const& kept) noexcept {
  auto* const first = static_cast<std::byte*>(whole.data);
  auto* const mine = static_cast<std::byte*>(kept.data);
  release(first, mine);
  release(mine + kept.bytes(), first + whole.bytes());
}

}  // namespace weft
