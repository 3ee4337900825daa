#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/cluster.hpp"
#include "weft/import_kineto.hpp"
#include "weft/op_graph.hpp"
#include "weft_schedule/amounts.hpp"
#include "weft_schedule/settings.hpp"

namespace weft::schedule_tool {

/// The input of planning.
struct Case {
  OpGraph graph{};  ///< its operators have different names
  Cluster cluster{};
  MemoryAmount memory{};
  double contention = 0;
  TransformerPlan plan{};  ///< of a --model
};

/// Reads the files or makes the model that the settings name, and applies the changes of --what-if.
/// @throws Error{invalid_argument} naming the file, or the change that cannot be made of this input.
[[nodiscard]] Case read_case(Settings const& settings, std::vector<Change> const& changes = {});

/// The trace of --measured; none if that option is not given.
/// @throws Error{invalid_argument} naming the file, as import_kineto().
[[nodiscard]] std::optional<ImportedTrace> read_measured(Settings const& settings);

/// Bytes of the tensors that exist from the beginning and are kept.
[[nodiscard]] std::int64_t resident_bytes(OpGraph const& graph);

}  // namespace weft::schedule_tool
