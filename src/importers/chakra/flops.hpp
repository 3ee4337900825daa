#pragma once

#include <optional>

#include "importers/chakra/nodes.hpp"

namespace weft::chakra {

/// Of matrix products, convolutions and attention, from the shapes of their arguments; none of what is something else.
[[nodiscard]] std::optional<double> flops_of(Node const& node);

}  // namespace weft::chakra
