#pragma once

#include <cstddef>
#include <functional>

#include "common/board.hpp"
#include "common/cases.hpp"

namespace weft::perf {

/// Collective: how many elements `call` gets wrong on all ranks together, in `checks` calls with known inputs. The
/// output is overwritten with garbage before each call.
[[nodiscard]] double count_wrong(Board& board, Case const& what, Operands const& on, Counts counts, Place place,
                                 ReduceOp op, int checks, std::function<void()> const& call);

}  // namespace weft::perf
