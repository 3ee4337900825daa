#include "weft/buffer.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "weft/error.hpp"
#include "weft/memory.hpp"

namespace weft {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
/// From this size on memory comes from the kernel in huge pages; below it, reuse by the allocator is worth more.
constexpr std::size_t kMapFrom = 2 * kHugePage;

[[noreturn]] void throw_out_of_memory(std::size_t count, DataType dtype) {
  throw Error(ErrorCode::out_of_memory, "Buffer::host: cannot allocate " + std::to_string(count) + " elements of " +
                                            std::string(to_string(dtype)) + "; free memory or ask for less");
}

std::size_t round_up(std::size_t value, std::size_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

/// Small memory, from the heap. Null when there is none.
std::shared_ptr<void> allocate_from_heap(std::size_t bytes) {
  auto const size = round_up(bytes == 0 ? 1 : bytes, kAlignment);
  void* const memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0, size);
  return {memory, [](void* pointer) { std::free(pointer); }};
}

/// Large memory: zero pages from the kernel, starting on a huge-page boundary. Null when there are none.
std::shared_ptr<void> allocate_pages(std::size_t bytes) {
  auto const size = round_up(bytes, kHugePage);
  auto const reserved = size + kHugePage;
  void* const mapping =
      mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  if (mapping == MAP_FAILED) return nullptr;
  auto const address = reinterpret_cast<std::uintptr_t>(mapping);
  auto const lead = round_up(address, kHugePage) - address;
  auto* const memory = static_cast<std::byte*>(mapping) + lead;
  if (lead > 0) munmap(mapping, lead);
  if (lead < kHugePage) munmap(memory + size, kHugePage - lead);
  madvise(memory, size, MADV_HUGEPAGE);  // a wish: kernels without huge pages refuse it, and nothing is lost
  return {memory, [size](void* pointer) { munmap(pointer, size); }};
}

}  // namespace

Buffer Buffer::host(std::size_t count, DataType dtype) {
  auto const limit = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) - 2 * kHugePage;
  if (!is_valid(dtype)) {
    throw Error(ErrorCode::invalid_argument,
                "Buffer::host: " + std::to_string(static_cast<int>(dtype)) + " is no DataType");
  }
  if (count > limit / size_of(dtype)) throw_out_of_memory(count, dtype);
  auto const bytes = count * size_of(dtype);
  MemoryCharge charge(MemoryScope::current(), bytes);
  auto memory = bytes < kMapFrom ? allocate_from_heap(bytes) : allocate_pages(bytes);
  if (!memory) throw_out_of_memory(count, dtype);
  return {hold_charge(std::move(memory), std::move(charge)), count, dtype, Device{}};
}

void Buffer::check_type(DataType wanted) const {
  if (wanted == view_.dtype) return;
  throw Error(ErrorCode::invalid_argument, "Buffer::as: the buffer holds " + std::string(to_string(view_.dtype)) +
                                               " but was asked for as " + std::string(to_string(wanted)));
}

}  // namespace weft
