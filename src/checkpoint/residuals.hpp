#pragma once

#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint.hpp"
#include "weft/gradient_compression.hpp"
#include "weft/training_checkpoint.hpp"

namespace weft {

/// What a checkpoint calls the residuals of `parameter`.
[[nodiscard]] std::string residual_name(NamedParameter const& parameter);

/// What rank `rank` of `ranks` has of each parameter's residuals: of "w" its row of "compression.w.residual".
/// @throws Error{invalid_argument} naming a parameter that has another number of them.
[[nodiscard]] std::vector<CheckpointTensor> residuals_of(GradientCompressor const& compressor,
                                                         std::span<NamedParameter const> parameters, int rank,
                                                         int ranks);

/// Puts them back, none where the checkpoint has none. Those of another number of ranks: each rank gets their mean.
void load_residuals(Checkpoint const& checkpoint, GradientCompressor& compressor,
                    std::span<NamedParameter const> parameters, int rank, int ranks);

}  // namespace weft
