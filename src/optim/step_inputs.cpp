#include "optim/step_inputs.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft {

void check_clip_value(char const* call, StepInputs const& inputs) {
  if (!inputs.clip_value || *inputs.clip_value >= 0) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: clip_value is {}; it must be at least 0", call, *inputs.clip_value));
}

void check_step_number(char const* call, StepInputs const& inputs) {
  if (inputs.step == nullptr || (*inputs.step >= 1 && *inputs.step <= kMostSteps)) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: *StepInputs::step is {}; the first step is 1, the last 2^53", call, *inputs.step));
}

void check_step_count(char const* call, std::int64_t steps) {
  if (steps >= 0 && steps <= kMostSteps) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: {} steps; it must be at least 0 and at most 2^53", call, steps));
}

}  // namespace weft
