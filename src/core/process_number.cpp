#include "core/process_number.hpp"

#include <pthread.h>

namespace weft {

namespace detail {
std::atomic<std::uint32_t> process_number{0};
}

namespace {

// Without memory for the handler a child is taken for its parent, as if nobody asked.
[[maybe_unused]] int const kWatched =
    ::pthread_atfork(nullptr, nullptr, [] { detail::process_number.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

}  // namespace weft
