#pragma once

#include <cstdint>

#include "weft/optimizer.hpp"

namespace weft {

/// Bias corrections take the number of a step as a double, which tells steps apart up to here.
inline constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

/// Checks what can be checked of inputs before a step begins, wherever it runs. @throws Error{invalid_argument} that
/// begins with `call`; so do the next two.
void check_clip_value(char const* call, StepInputs const& inputs);
/// For inputs in the CPU's memory.
void check_step_number(char const* call, StepInputs const& inputs);
/// For set_step_count().
void check_step_count(char const* call, std::int64_t steps);

}  // namespace weft
