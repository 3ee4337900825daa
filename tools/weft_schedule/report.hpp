#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft_schedule/outcome.hpp"

namespace weft::schedule_tool {

/// Prints the table of policies, what bounds the step, and how much communication is left exposed and why; side by side
/// with `what_if`'s figures if there is one and it fits.
void print_report(std::FILE* out, Outcome const& outcome, std::optional<WhatIf> const& what_if);

/// The same figures: {graph, cluster, capacity, ..., policies: [{name, makespan_ms, lower_bound_ms, exposed_fraction,
/// peak_bytes, planning_s, ...}], what_if: {changes, ...; does_not_fit: why}}.
[[nodiscard]] nlohmann::ordered_json report_json(Outcome const& outcome, std::optional<WhatIf> const& what_if);

}  // namespace weft::schedule_tool
