#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <weft/optimizer.hpp>

#include "gpt_model.hpp"
#include "options.hpp"

namespace train_gpt {

/// Everything a run needs to continue bit-identically at the same number of ranks.
struct Checkpoint {
  GptConfig model;
  int batch = 0;
  float lr = 0;
  std::uint64_t seed = 0;
  std::uint64_t text_fingerprint = 0;
  int step = 0;               ///< finished steps
  std::vector<float> values;  ///< for each tensor: parameters, first moments, second moments
};

/// Writes to FILE.tmp, syncs and renames, so that `path` holds the old checkpoint or the new one and never a part.
/// @throws std::runtime_error naming the path and the cause.
void save_checkpoint(std::string const& path, Checkpoint const& checkpoint);

/// @throws std::runtime_error naming the path and what is wrong: not a checkpoint, cut short, damaged.
[[nodiscard]] Checkpoint load_checkpoint(std::string const& path);

/// The run's state after `step` steps.
[[nodiscard]] Checkpoint capture(Options const& options, std::uint64_t text_fingerprint, int step,
                                 GptModel const& model, weft::Optimizer const& optimizer);

/// Puts parameters, moments and step count back. @throws std::runtime_error when the file is for another model.
void restore(Checkpoint const& checkpoint, GptModel& model, weft::Optimizer& optimizer);

/// Takes model shape, batch, lr and seed from the checkpoint. @throws std::runtime_error when an option that was given
/// on the command line says otherwise, when the text is another one, or when no step is left to run.
void adopt(Options& options, Checkpoint const& checkpoint, std::uint64_t text_fingerprint);

}  // namespace train_gpt
