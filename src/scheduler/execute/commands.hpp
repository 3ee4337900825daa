#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "weft/cost_model.hpp"
#include "weft/op_graph.hpp"
#include "weft/schedule.hpp"

namespace weft {

/// What the caller's thread does next in a step.
struct PlanCommand {
  enum class Kind : std::uint8_t {
    run,     ///< run `launch` on this thread
    send,    ///< start `launch` on its resource's stream
    wait,    ///< until `launch` has ended
    follow,  ///< whatever is sent on `resource` from now on starts after `launch`
  };
  Kind kind = Kind::run;
  std::int32_t launch = 0;  ///< of Schedule::launches
  Resource resource = Resource::compute;
  bool operator==(PlanCommand const&) const = default;
};

/// Turns a plan into commands. Computing runs in the plan's order. Each collective and each copy is sent in the order
/// of its resource, as soon as all computing it needs has run; waits are put where something is needed. With `blocking`
/// each launch ends before the next one starts, in the plan's order. Pure.
/// @throws Error{invalid_argument}, naming the operator, where the plan is none of the graph: an operator that is
/// missing or there twice, that starts before what it waits for, or is merged with one of another kind or group.
[[nodiscard]] std::vector<PlanCommand> plan_commands(OpGraph const& graph, Schedule const& plan, bool blocking);

}  // namespace weft
