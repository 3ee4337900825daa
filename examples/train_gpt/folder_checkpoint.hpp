#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <weft/training_checkpoint.hpp>

#include "checkpoint.hpp"

namespace train_gpt {

/// Sharded checkpoints of a run (--checkpoint), written while it goes on. Every member is collective.
class FolderCheckpoints {
 public:
  /// Does nothing where options.checkpoint is empty.
  FolderCheckpoints(weft::Communicator& world, Options const& options, std::uint64_t text_fingerprint,
                    GptParameters const& parameters);

  /// Saves after step `step` (from 0) if it is time to; true then.
  bool after_step(int step, Strategy& strategy);
  /// Returns once the last save is there. @throws weft::Error where it could not be written.
  void finish();

 private:
  Options const& options_;
  int ranks_;
  std::uint64_t text_fingerprint_;
  std::vector<weft::NamedParameter> parameters_;
  std::optional<weft::CheckpointSaver> saver_;
};

/// --checkpoint replaces what its folder holds, as it should where that is what --resume continues. @throws
/// weft::Error{invalid_argument} where it is another run's, saying what it is and what to do, unless
/// --overwrite-checkpoint was given.
void refuse_to_replace(Options const& options);

/// What a folder's checkpoint says of its run. @throws weft::Error, std::runtime_error naming the file and the reason.
[[nodiscard]] Checkpoint load_folder_header(std::string const& folder);

/// Puts a folder's checkpoint back, each rank its part. Collective.
void restore_folder(weft::Communicator& world, std::string const& folder, Checkpoint const& header,
                    GptParameters const& parameters, Strategy& strategy);

}  // namespace train_gpt
