#pragma once

#include <iosfwd>
#include <string>

#include "weft/import_report.hpp"
#include "weft/op_graph.hpp"

namespace weft {

struct ImportedChakra {
  OpGraph graph{};
  ImportReport report{};
};

/// Reads the execution trace in JSON that torch's ExecutionTraceObserver writes (schema "1.1.x-chakra"): operators with
/// the tensors that they read and write.
///
/// Of nodes within one another ("ctrl_deps") the outermost with a schema is the operator; those that hold a collective
/// or a call of a tensor subclass are taken apart. A storage is a tensor; what an operator writes into one that was
/// there (by its schema's "!") is a tensor in its memory, after all that used it before. A result in a storage that is
/// none of the arguments' is a new tensor, even where torch gives the storage's number a second time. Views and
/// allocations are free and no operators. Storages are there from the beginning and kept where no operator made them.
/// Matrix products, convolutions and attention count flops, all others only the bytes of their arguments and results.
/// Collectives are torch's calls ("c10d::"), with the group that "record_param_comms" names. Operators of an
/// "Optimizer.step" are updates. Threads' order is no edge: what has to wait does so for data.
///
/// @throws Error{invalid_argument} naming source and line, or the node: no JSON, no list of "nodes", ids that are
/// missing or twice, "ctrl_deps" that is no earlier node, tensors of negative or too many bytes. What is unknown is
/// counted.
[[nodiscard]] ImportedChakra import_chakra(std::istream& json, std::string const& source);

}  // namespace weft
