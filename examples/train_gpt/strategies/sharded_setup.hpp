#pragma once

#include <vector>

#include <weft/fully_sharded.hpp>
#include <weft/zero_optimizer.hpp>

#include "gpt_parameters.hpp"
#include "options.hpp"
#include "step_control.hpp"

namespace train_gpt {

// What zero1 to hsdp are made from, wherever a model is trained.

[[nodiscard]] weft::ZeroOptions zero_options(Options const& options, StepControl& control,
                                             weft::BucketerOptions buckets);

/// A model that has memory nowhere yet, to be trained on `device`.
[[nodiscard]] std::vector<weft::ShardedUnit> units_of(GptParameters const& parameters, Options const& options,
                                                      weft::Device device = {});
/// Rank 0 makes the starting values, tensor by tensor, while `parameters` last.
[[nodiscard]] weft::FullyShardedOptions fully_sharded_options(Options const& options, GptParameters const& parameters,
                                                              int ranks, StepControl& control);

}  // namespace train_gpt
