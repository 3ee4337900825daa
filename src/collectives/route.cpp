#include "collectives/route.hpp"

#include <fmt/format.h>

namespace weft {

std::string describe(Route route) {
  auto const rank = static_cast<int>(route.rank);
  switch (route.how) {
    case Route::How::unknown: return "unknown";
    case Route::How::zero_copy: return "zero copy";
    case Route::How::small: return "staged: faster at this size";
    case Route::How::private_send:
      return fmt::format("copied: rank {}'s send buffer is private memory, not from its shared heap or allocate()",
                         rank);
    case Route::How::private_recv:
      return fmt::format("copied: rank {}'s receive buffer is private memory, not from its shared heap or allocate()",
                         rank);
    case Route::How::no_heap: return fmt::format("copied: rank {} has no shared heap that all ranks can map", rank);
    case Route::How::released:
      return fmt::format("copied: rank {} has released its part of a symmetric buffer that another rank uses", rank);
    case Route::How::in_place:
      return fmt::format("copied: rank {} calls in place, and would overwrite what its peers still read", rank);
    case Route::How::places_differ:
      return fmt::format("copied: the merged calls' buffers are not all at the same places in symmetric memory");
  }
  return "unknown";
}

}  // namespace weft
