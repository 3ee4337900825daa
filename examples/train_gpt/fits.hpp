#pragma once

#include <cstddef>

#include "options.hpp"

namespace train_gpt {

/// Before anything is allocated: whether `available` bytes of this host could hold the parameters, gradients and
/// optimizer states of its ranks (options.ranks of them), of `ranks` in all. What else they need comes on top.
/// @throws weft::Error{out_of_memory} with both figures and what to do.
void check_fits(Options const& options, int ranks, std::size_t available);

}  // namespace train_gpt
