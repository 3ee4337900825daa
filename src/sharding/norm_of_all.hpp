#pragma once

#include "optim/gradient_parts.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Collective: combines all ranks' parts. Every rank gets the same result.
[[nodiscard]] NormParts parts_of_all(Communicator& communicator, NormParts const& mine, NormType type,
                                     CollectiveOptions const& options = {});

}  // namespace weft
