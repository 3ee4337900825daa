#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/index.hpp"
#include "checkpoint/safetensors.hpp"

namespace weft {

/// Local: refuses what one rank can see to be wrong by itself. @throws Error{invalid_argument|unsupported} naming the
/// tensor
void check_tensors(std::span<CheckpointTensor const> tensors);

/// What a rank tells the others about its part of a save.
[[nodiscard]] std::string describe(std::span<CheckpointTensor const> tensors);

/// Plans a save, the same on every rank: all its tensors, without checksums, from every rank's description in rank
/// order. Rank r writes file r. Pure. @throws Error{mismatch|invalid_argument} naming the tensor
[[nodiscard]] std::vector<IndexTensor> plan_tensors(std::span<std::string const> descriptions);

/// One part of a tensor, as it lies in one file.
struct FilePart {
  std::size_t tensor = 0;  ///< index into the tensors
  std::size_t part = 0;    ///< index into its parts
};
/// The parts in `file`, in its order: wide types first, so that every value is aligned.
[[nodiscard]] std::vector<FilePart> parts_of(std::span<IndexTensor const> tensors, std::size_t file);

/// The entries of these parts in the file's header. Offsets are not set.
[[nodiscard]] std::vector<StoredTensor> stored(std::span<IndexTensor const> tensors, std::span<FilePart const> parts);

}  // namespace weft
