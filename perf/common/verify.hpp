#pragma once

#include <cstddef>
#include <functional>

#include "common/board.hpp"
#include "common/cases.hpp"

namespace weft::perf {

/// Collective: how many elements `call` got wrong on all ranks together, in `checks` calls with inputs known in
/// advance. The output is overwritten with rubbish before each of them.
[[nodiscard]] double count_wrong(Board& board, Case const& what, Operands const& on, Counts counts, Place place,
                                 ReduceOp op, int checks, std::function<void()> const& call);

}  // namespace weft::perf
