#include "core/process_number.hpp"

#include <pthread.h>

#include <atomic>

namespace weft {
namespace {

std::atomic<std::uint32_t> number{0};

// Without memory for the handler a child is taken for its parent, as if nobody asked.
[[maybe_unused]] int const kWatched =
    ::pthread_atfork(nullptr, nullptr, [] { number.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint32_t process_number() noexcept {
  return number.load(std::memory_order_relaxed);
}

}  // namespace weft
