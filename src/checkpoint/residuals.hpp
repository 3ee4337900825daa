#pragma once

#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint.hpp"
#include "weft/gradient_compression.hpp"
#include "weft/training_checkpoint.hpp"

namespace weft {

/// The name of the tensor in a checkpoint that has `parameter`'s residuals.
[[nodiscard]] std::string residual_name(NamedParameter const& parameter);

/// The residuals that rank `rank` of `ranks` has, for a save: of parameter "w" its row of "compression.w.residual".
/// @throws Error{invalid_argument} naming a parameter with another number of residuals than elements.
[[nodiscard]] std::vector<CheckpointTensor> residuals_of(GradientCompressor const& compressor,
                                                         std::span<NamedParameter const> parameters, int rank,
                                                         int ranks);

/// @throws Error{invalid_argument} naming a parameter whose residuals in the checkpoint do not fit.
void check_residuals(Checkpoint const& checkpoint, std::span<NamedParameter const> parameters);

/// Gives the compressor the residuals of a checkpoint, which are checked already; a parameter without any there gets
/// none. If another number of ranks saved them, each rank gets their mean.
void load_residuals(Checkpoint const& checkpoint, GradientCompressor& compressor,
                    std::span<NamedParameter const> parameters, int rank, int ranks);

}  // namespace weft
