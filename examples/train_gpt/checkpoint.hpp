#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <weft/grad_scaler.hpp>

#include "gpt_parameters.hpp"
#include "options.hpp"

namespace train_gpt {

class Strategy;

/// Everything a run needs to continue bit-identically at the same number of ranks. Of one in a folder
/// (folder_checkpoint.hpp) all but the values.
struct Checkpoint {
  GptConfig model;
  int batch = 0;
  float lr = 0;
  std::uint64_t seed = 0;
  std::uint64_t text_fingerprint = 0;
  std::string optimizer = "adamw";
  double weight_decay = 0;
  double clip = 0;
  int warmup = 0;
  std::string decay = "constant";
  int step = 0;                                ///< finished steps
  std::int64_t applied = 0;                    ///< those that did not overflow
  weft::GradScaler::State scaler{.scale = 0};  ///< of fp16; scale 0: there was none
  std::vector<float> values{};                 ///< for each tensor: parameters, then each of the optimizer's states
};

/// Writes to FILE.tmp, syncs and renames, so that `path` holds the old checkpoint or the new one and never a part.
/// @throws std::runtime_error naming the path and the cause.
void save_checkpoint(std::string const& path, Checkpoint const& checkpoint);

/// @throws std::runtime_error naming the path and what is wrong: not a checkpoint, cut short, damaged.
[[nodiscard]] Checkpoint load_checkpoint(std::string const& path);

/// All but the values, as JSON. @throws std::runtime_error naming `path` for text that is something else.
[[nodiscard]] std::string header_of(Checkpoint const& checkpoint);
[[nodiscard]] Checkpoint read_header(std::string const& path, std::string const& header);

/// The run's state after `step` steps, all but the values.
[[nodiscard]] Checkpoint describe_run(Options const& options, std::uint64_t text_fingerprint, int step,
                                      Strategy& strategy);
/// With the values. Collective.
[[nodiscard]] Checkpoint capture(Options const& options, std::uint64_t text_fingerprint, int step,
                                 GptParameters const& parameters, Strategy& strategy);

/// Puts the loss scale back.
void restore_scaler(Checkpoint const& checkpoint, Strategy& strategy);

/// Puts it back, before the first step. Collective. @throws std::runtime_error when the file is for another model.
void restore(Checkpoint const& checkpoint, GptParameters const& parameters, Strategy& strategy);

/// Takes all that the next steps follow from: model shape, batch, seed, optimizer, learning rate and clipping. @throws
/// std::runtime_error when an option that was given on the command line says otherwise, when the text is another one,
/// or when no step is left to run.
void adopt(Options& options, Checkpoint const& checkpoint, std::uint64_t text_fingerprint);

}  // namespace train_gpt
