#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "weft/op_graph.hpp"
#include "weft/schedule.hpp"

namespace weft::schedule_tool {

/// What a plan means in terms of the settings of trainers that cannot run the plan itself.
struct Advice {
  /// The tried settings with the shortest step. Tried are the plan's own and others close to them. The plan's own
  /// bucket size is such that half of all bytes are in launches of at least this size; its own depth is the median,
  /// over all starts of a gather, of the gathers that have started and are not used yet. None if the step sends
  /// nothing.
  ScheduleSettings settings{};
  double settings_s = 0;       ///< a step with them, within the same memory
  double single_s = 0;         ///< a step whose collectives are sent one by one, each as soon as it can be
  double layers_a_gather = 0;  ///< number of layers per settings.gather_bytes; 0 if layers gather nothing
  bool gathers = false;
  bool reduces = false;  ///< sums of gradients
  /// Layers, in rising order, whose weights need not be gathered a second time: besides what is live in the plan, there
  /// is room for them from their last use in forward to their first use in backward.
  std::vector<int> kept_layers{};
  double kept_saves_s = 0;  ///< seconds of sending that this saves
  /// A step with the settings and these layers kept; none if that was not planned, as for graphs that are no model.
  std::optional<double> kept_s{};
};

/// Seconds of a step with the settings, within the schedule's capacity; none if it does not fit.
using TrySettings = std::function<std::optional<double>(ScheduleSettings const&)>;

/// Whether there is no time left to try more.
using IsOver = std::function<bool()>;

/// Calls `attempt` for a few settings while there is time; for graphs of more than 20,000 operators, only for the
/// plan's own settings.
[[nodiscard]] Advice advice_from(OpGraph const& graph, Schedule const& schedule, TrySettings const& attempt,
                                 IsOver const& is_over);

}  // namespace weft::schedule_tool
