#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "weft/op_graph.hpp"
#include "weft/schedule.hpp"

namespace weft::schedule_tool {

/// What a plan comes to in the settings of trainers that cannot run it as it is.
struct Advice {
  /// Of those that were tried the ones whose step is shortest: the plan's own (half of all bytes are in launches of at
  /// least so many; so many gathers have started and are not used yet when another one starts: the median) and others
  /// near them. None where the step sends nothing.
  ScheduleSettings settings{};
  double settings_s = 0;       ///< a step with them, within the same memory
  double single_s = 0;         ///< a step whose collectives are sent one by one, each as soon as it can
  double layers_a_gather = 0;  ///< whose gathered bytes settings.gather_bytes are; 0 where layers gather nothing
  bool gathers = false;
  bool reduces = false;  ///< sums of gradients
  /// Layers, rising, whose weights need not be gathered a second time: there is room for them from their last use in
  /// forward to the first in backward, beside what is live then in the plan.
  std::vector<int> kept_layers{};
  double kept_saves_s = 0;  ///< of sending
  /// A step with the settings and these layers kept; none where that was not planned: of what is no model.
  std::optional<double> kept_s{};
};

/// Seconds of a step with settings, within the schedule's capacity; none where it does not fit.
using TrySettings = std::function<std::optional<double>(ScheduleSettings const&)>;

/// Whether there is no time left to try more.
using IsOver = std::function<bool()>;

/// `attempt` is called for a few settings while there is time; of more than 20,000 operators for the plan's own alone.
[[nodiscard]] Advice advice_from(OpGraph const& graph, Schedule const& schedule, TrySettings const& attempt,
                                 IsOver const& is_over);

}  // namespace weft::schedule_tool
