#pragma once

#include "weft/optimizer.hpp"

namespace weft {

/// What can be told of them before a step begins, wherever it runs. @throws Error{invalid_argument} that begins with
/// `call`.
void check_clip_value(char const* call, StepInputs const& inputs);
/// Where inputs are in the CPU's memory.
void check_step_number(char const* call, StepInputs const& inputs);

}  // namespace weft
