#pragma once

#include <optional>

#include "importers/chakra/nodes.hpp"

namespace weft::chakra {

/// The floating-point operations of a matrix product, a convolution or attention, from the shapes of its arguments;
/// empty for any other operator.
[[nodiscard]] std::optional<double> flops_of(Node const& node);

}  // namespace weft::chakra
