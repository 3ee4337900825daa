#include "core/process_number.hpp"

#include <pthread.h>

namespace weft {

namespace detail {
std::atomic<std::uint32_t> process_number{0};
}

namespace {

// If there is no memory for the handler, a child keeps its parent's number.
[[maybe_unused]] int const kWatched =
    ::pthread_atfork(nullptr, nullptr, [] { detail::process_number.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

}  // namespace weft
