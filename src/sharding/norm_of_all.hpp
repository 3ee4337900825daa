#pragma once

#include "optim/gradient_parts.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Collective: what all ranks' parts combine to, the same on each.
[[nodiscard]] NormParts parts_of_all(Communicator& communicator, NormParts const& mine, NormType type,
                                     CollectiveOptions const& options = {});

}  // namespace weft
