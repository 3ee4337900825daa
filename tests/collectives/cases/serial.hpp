#pragma once

#include <optional>
#include <string>

#include "collectives/cases/contributions.hpp"
#include "collectives/cases/layout.hpp"

namespace weft::test {

/// Compares what a call left in one piece with two serial computations: rank by rank in the accumulating type, whose
/// bits are expected, and in double precision (complex ones part by part), within the error that the type's rounding
/// allows. Integers, truth values and copies are exact in either. Says what differs first.
[[nodiscard]] std::optional<std::string> find_difference(Case const& one, Contributions const& contributions,
                                                         Piece const& piece, std::byte const* got);

/// The same for results of another library, which may add in another order: only the second comparison, and none where
/// infinities or NaN have a part.
[[nodiscard]] std::optional<std::string> find_deviation(Case const& one, Contributions const& contributions,
                                                        Piece const& piece, std::byte const* got);

}  // namespace weft::test
