#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "weft/import_report.hpp"
#include "weft/op_graph.hpp"

namespace weft {

/// A measured step: operator i of the graph ran on streams[lanes[i]] from starts[i] on, for as long as its `seconds`.
struct ImportedTrace {
  OpGraph graph{};
  std::vector<double> starts{};        ///< seconds since the first operator's
  std::vector<int> lanes{};            ///< indices into streams
  std::vector<std::string> streams{};  ///< "thread 71", "stream 7 of device 0"
  ImportReport report{};
};

/// Reads the Chrome trace that torch.profiler exports, of CPUs and GPUs: calls of operators by thread, kernels and
/// copies by stream.
///
/// Of calls within one another the outermost is the operator, but those in which a collective or something for a GPU is
/// started, and annotations, are taken apart: each part is an operator, and what is left of the whole another one
/// before them. Control edges: the order within each thread and stream, from a launch to what it launched
/// ("correlation"), flows, stream waits ("cuda_sync") and synchronisations, and from what a thread launched before to a
/// collective on another stream, which waits for it. Collectives are known by their names ("c10d::", "nccl:", "gloo:",
/// "weft:", nccl's kernels) and what "record_param_comms" says of them; where a call and what it starts are both there,
/// the latter is the collective. There are no tensors: a trace does not name them. Operators of an "Optimizer.step" are
/// updates.
///
/// @throws Error{invalid_argument} naming source and line, or the event: no JSON, no list of "traceEvents", times or
/// durations that are missing, negative or no numbers. What is unknown is counted in the report, and costs its time.
[[nodiscard]] ImportedTrace import_kineto(std::istream& json, std::string const& source);

}  // namespace weft
