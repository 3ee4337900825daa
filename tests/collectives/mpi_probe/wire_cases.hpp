#pragma once

#include <string>

#include "weft/communicator.hpp"

namespace weft::test {

/// Sums and averages of `world`, which has what crosses hosts rounded, are within the bound of weft/wire_format.hpp of
/// those of f64, and the same bits on every rank; with feedback their mean over many calls is exact. `hosts`: a letter
/// for every rank, of its host. @throws std::runtime_error
void check_wire_format(Communicator& world, std::string const& hosts);

}  // namespace weft::test
