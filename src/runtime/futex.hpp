#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace weft {

/// Sleeps while `word` equals `expected`, at most until `deadline`. May return early: re-check the word in a loop.
/// For threads of one process. std::atomic::wait is not used because it has no deadline and spins first.
void futex_wait(std::atomic<std::uint32_t> const& word, std::uint32_t expected,
                std::optional<std::chrono::steady_clock::time_point> deadline = {}) noexcept;

/// Wakes every thread of this process that sleeps on `word`.
void futex_wake_all(std::atomic<std::uint32_t> const& word) noexcept;

}  // namespace weft
