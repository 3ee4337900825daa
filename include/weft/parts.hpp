#pragma once

#include <cstddef>
#include <span>

namespace weft {

/// How a buffer is divided among ranks that take unequal shares: rank r's part is elements
/// [offsets[r], offsets[r] + counts[r]). Without offsets the parts lie one after the other. A view: the arrays, of one
/// entry per rank, only have to last for the call that is given them.
struct Parts {
  std::span<std::size_t const> counts;
  std::span<std::size_t const> offsets{};
};

}  // namespace weft
