#pragma once

#include <cstdint>
#include <vector>

#include "weft/op_graph.hpp"
#include "weft/schedule.hpp"

namespace weft::schedule_tool {

/// What a plan comes to in the settings of trainers that cannot run it as it is.
struct Advice {
  /// Bytes of a launch: half of all bytes are sent in launches of at least this many. 0 where there are none.
  std::int64_t gather_bytes = 0;
  std::int64_t reduction_bytes = 0;
  /// Gathers that have started and that nothing has used yet when another one starts: the median.
  int prefetch_depth = 0;
  /// Layers, rising, whose weights need not be gathered a second time: there is room for them from their last use in
  /// forward to the first in backward, beside what is live then in the plan.
  std::vector<int> kept_layers{};
  double kept_saves_s = 0;  ///< of sending
};
[[nodiscard]] Advice advice_from(OpGraph const& graph, Schedule const& schedule);

}  // namespace weft::schedule_tool
