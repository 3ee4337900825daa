#pragma once

#include "weft/communicator.hpp"

namespace weft::test {

/// Every collective and message on memory of `device`, each beside the same call on host memory, whose results are the
/// reference: equal bytes, out of place and in place, alone, on a stream and in groups, with equal and unequal parts,
/// then the same of a split communicator and of registered memory. The communicator is connected. Fails the test.
void expect_as_on_host(Communicator& world, Device device);

}  // namespace weft::test
