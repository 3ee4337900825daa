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

/// What is planned.
struct Case {
  OpGraph graph{};  ///< operators have names of their own
  Cluster cluster{};
  MemoryAmount memory{};
  double contention = 0;
  TransformerPlan plan{};  ///< of a --model
};

/// Of the files or the model that the settings name, with --what-if's changes made.
/// @throws Error{invalid_argument} naming the file, or the change that cannot be made of this input.
[[nodiscard]] Case read_case(Settings const& settings, std::vector<Change> const& changes = {});

/// The trace of --measured; none where there is no such option.
/// @throws Error{invalid_argument} naming the file, as import_kineto().
[[nodiscard]] std::optional<ImportedTrace> read_measured(Settings const& settings);

/// Bytes of what is kept and there from the beginning.
[[nodiscard]] std::int64_t resident_bytes(OpGraph const& graph);

}  // namespace weft::schedule_tool
