#pragma once

#include <cstdint>
#include <string>

namespace weft {

/// How a call's bytes went between the ranks of one host: straight between users' buffers, or copied, and then why.
struct Route {
  enum class How : std::uint8_t {
    unknown,        ///< not recorded: nothing to move, or ranks of several hosts
    zero_copy,      ///< the ranks worked in one another's buffers
    small,          ///< copying is faster at this size, whatever the memory
    private_send,   ///< `rank` sends from memory that its peers cannot reach
    private_recv,   ///< `rank` receives into such memory
    no_heap,        ///< no rank could use other memory, since `rank` has no shared heap that all ranks can map
    released,       ///< `rank` has released its part of a symmetric buffer that another rank still uses
    in_place,       ///< `rank` would overwrite what its peers read
    places_differ,  ///< a merged call: buffers lie differently on the ranks, or not in symmetric buffers
  };

  How how = How::unknown;
  std::uint8_t rank = 0;

  friend bool operator==(Route const&, Route const&) = default;
};

/// Whether the call was copied for a reason without which it would have been zero-copy.
[[nodiscard]] constexpr bool is_copied(Route route) noexcept {
  return route.how > Route::How::small;
}

/// "zero copy"; "copied: rank 1's send buffer is in private memory, …"
[[nodiscard]] std::string describe(Route route);

}  // namespace weft
