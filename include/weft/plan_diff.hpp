#pragma once

#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/import_kineto.hpp"

namespace weft {

/// What a plan expected of an operator.
struct PlannedTime {
  std::string name{};
  double start = 0;  ///< seconds since the plan's first operator started
  double seconds = 0;
};

/// One operator, planned and measured; either may be missing.
struct PlanDiffRow {
  std::string name{};
  std::optional<PlannedTime> planned{};
  std::optional<PlannedTime> measured{};
  double late = 0;    ///< its start after the planned one; negative: before. 0 where one is missing
  double longer = 0;  ///< it took so much more than planned
};

struct PlanDiff {
  std::vector<PlanDiffRow> rows{};  ///< by planned start; after them those that were not planned, by measured start
  double planned_seconds = 0;       ///< from the first start to the last end
  double measured_seconds = 0;
  std::size_t not_measured = 0;
  std::size_t not_planned = 0;
};

/// A plan beside a trace. The k-th of a name is compared with the k-th of that name, each in order of start ("#2" and
/// so on at the end of names count as the same name); times count from the first operator that is in both.
[[nodiscard]] PlanDiff compare_plan(std::span<PlannedTime const> planned, std::span<PlannedTime const> measured);

/// A trace's operators, as compare_plan() takes them.
[[nodiscard]] std::vector<PlannedTime> times_of(ImportedTrace const& trace);

/// A table, what was latest first, of `most` rows, and a line that says what is missing.
[[nodiscard]] std::string to_string(PlanDiff const& diff, std::size_t most = 20);

}  // namespace weft
