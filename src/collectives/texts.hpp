#pragma once

#include <string>
#include <vector>

#include "weft/communicator.hpp"

namespace weft {

/// Collective: every rank's text, in rank order.
[[nodiscard]] std::vector<std::string> gather_texts(Communicator& communicator, std::string const& mine,
                                                    CollectiveOptions const& options = {});

/// Collective: rank `root`'s text on every rank.
[[nodiscard]] std::string broadcast_text(Communicator& communicator, std::string text, int root = 0,
                                         CollectiveOptions const& options = {});

}  // namespace weft
