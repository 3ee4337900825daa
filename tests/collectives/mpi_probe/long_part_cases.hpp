#pragma once

#include "weft/communicator.hpp"

namespace weft::test {

/// all_gather, broadcast, all_to_all, gather and scatter of parts that are long enough for ranks to write to one
/// another's symmetric memory, and for several blocks of a pipeline: there, at offsets of each rank's own, in place,
/// and where one rank's buffers are private. Every element is known. Collective. @throws std::runtime_error
void check_long_parts(Communicator& world);

/// all_reduces of many chunks have the bits of the same ones cut into calls that are too short for any pipeline, which
/// ranks of several hosts combine in another way; and reduce_scatters and reduces those of all_reduces. Collective.
/// @throws std::runtime_error
void check_long_sums(Communicator& world);

/// all_reduce, reduce and scan of long buffers of a caller's own elements, of sizes that divide neither cache lines nor
/// blocks. Collective. @throws std::runtime_error
void check_long_elements(Communicator& world);

}  // namespace weft::test
