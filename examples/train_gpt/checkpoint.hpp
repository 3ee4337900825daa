#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

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

/// Moment `which` of tensor `index`, taken from an optimizer or put back into it.
using TakeMoment = std::function<std::vector<float>(std::size_t index, std::size_t which)>;
using PutMoment = std::function<void(std::size_t index, std::size_t which, std::span<float const> values)>;

/// The run's state after `step` steps.
[[nodiscard]] Checkpoint capture(Options const& options, std::uint64_t text_fingerprint, int step,
                                 GptModel const& model, TakeMoment const& moment);

/// Puts parameters back. @throws std::runtime_error when the file is for another model.
void restore_parameters(Checkpoint const& checkpoint, GptModel& model);
/// Puts the moments of a model's tensors back.
void restore_moments(Checkpoint const& checkpoint, GptModel const& model, PutMoment const& put);

/// Takes model shape, batch, lr and seed from the checkpoint. @throws std::runtime_error when an option that was given
/// on the command line says otherwise, when the text is another one, or when no step is left to run.
void adopt(Options& options, Checkpoint const& checkpoint, std::uint64_t text_fingerprint);

}  // namespace train_gpt
