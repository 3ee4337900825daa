#pragma once

#include "common/cases.hpp"

namespace weft::perf {

/// main() of every program here: parses, launches the ranks, measures `what`, prints, and returns the exit code (0; 1
/// when an element was wrong or a rank failed; 2 for a bad argument).
int run_program(Op what, int argc, char const* const* argv);

}  // namespace weft::perf
