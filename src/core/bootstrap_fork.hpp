#pragma once

#include <sys/types.h>

#include "weft/bootstrap.hpp"

namespace weft {

/// Tells the ranks which process the parent forked for `element`'s rank, so that its death is noticed even if it never
/// makes a call. Called by the parent right after fork(); does nothing for other kinds of bootstrap.
void note_forked(Bootstrap& element, pid_t pid) noexcept;

}  // namespace weft
