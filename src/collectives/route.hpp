#pragma once

#include <cstdint>
#include <string>

namespace weft {

/// How a call's bytes went between ranks of one host: straight from where they lay, or else why they were copied.
struct Route {
  enum class How : std::uint8_t {
    unknown,        ///< not said: nothing to move, or ranks of several hosts
    zero_copy,      ///< the ranks worked in one another's buffers
    small,          ///< staging is the faster way at this size, in any memory
    private_send,   ///< `rank` sends from memory that its peers cannot reach
    private_recv,   ///< the same of where it receives
    no_heap,        ///< nor could it, since `rank` has no shared heap
    released,       ///< `rank` no longer holds its part of another's symmetric buffer
    in_place,       ///< `rank` would overwrite what its peers read
    places_differ,  ///< of a merged call: buffers lie differently on the ranks, or not in symmetric buffers
  };

  How how = How::unknown;
  std::uint8_t rank = 0;

  friend bool operator==(Route const&, Route const&) = default;
};

/// Whether the call would have been without copies but for the reason.
[[nodiscard]] constexpr bool is_copied(Route route) noexcept {
  return route.how > Route::How::small;
}

/// "zero copy"; "copied: rank 1's send buffer is in private memory, …"
[[nodiscard]] std::string describe(Route route);

}  // namespace weft
