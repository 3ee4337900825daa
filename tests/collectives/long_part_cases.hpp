#pragma once

#include "weft/communicator.hpp"

namespace weft::test {

/// all_gather, all_to_all, gather and scatter of parts that are long enough for ranks to write to one another's
/// symmetric memory: there, at offsets of each rank's own, in place, and where one rank's buffers are private. Every
/// element is known. Collective. @throws std::runtime_error
void check_long_parts(Communicator& world);

}  // namespace weft::test
