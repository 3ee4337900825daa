#pragma once

#include <string>
#include <vector>

#include "weft/data_type.hpp"
#include "weft/reduce_op.hpp"

namespace weft::perf {

/// nccl-tests' name of a data type: "float", "half", "int8", …; Weft's own name if nccl-tests has none.
[[nodiscard]] std::string nccl_name(DataType dtype);
/// nccl-tests' name of an operator.
[[nodiscard]] std::string nccl_name(ReduceOp op);

/// What options -d and -o accept.
[[nodiscard]] std::vector<DataType> known_types();
[[nodiscard]] std::vector<ReduceOp> known_ops();

/// What `-d all` and `-o all` measure: nccl-tests' types and reductions, in its order.
[[nodiscard]] std::vector<DataType> const& all_types();
[[nodiscard]] std::vector<ReduceOp> const& all_ops();

}  // namespace weft::perf
