#pragma once

#include "importers/hlo/module.hpp"
#include "importers/hlo/unroll.hpp"
#include "weft/op_graph.hpp"

namespace weft::hlo {

/// Marks tensors that stay when the step has ended, puts results into the memory of the parameters that
/// input_output_alias gives away for them, and makes the operators that write these results updates.
/// @throws Error{invalid_argument} with line and column: an input_output_alias that names what there is not.
void donate(Module const& module, Ends const& ends, OpGraph& graph);

/// Makes memory that is written over (OpTensor::alias_of) safe: by control edges, every reader of the earlier state
/// ends before the new one is written. Where a reader comes only afterwards, or the old state is kept (a parameter that
/// nobody gives away, a result), the new state gets memory of its own, and its operator copies the old one. Pre: the
/// operators are in an order in which they can run.
void order_overwriting(OpGraph& graph);

}  // namespace weft::hlo
