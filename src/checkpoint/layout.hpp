#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/index.hpp"
#include "checkpoint/safetensors.hpp"

namespace weft {

/// Local: what one rank can refuse by itself. @throws Error{invalid_argument|unsupported} naming the tensor
void check_tensors(std::span<CheckpointTensor const> tensors);

/// What a rank tells the others about its part.
[[nodiscard]] std::string describe(std::span<CheckpointTensor const> tensors);

/// The tensors of a save, without checksums, from every rank's description, in rank order; file r is rank r's. Pure.
/// @throws Error{mismatch|invalid_argument} naming the tensor
[[nodiscard]] std::vector<IndexTensor> plan_tensors(std::span<std::string const> descriptions);

/// A part of a tensor that lies in one file.
struct FilePart {
  std::size_t tensor = 0;  ///< index into the tensors
  std::size_t part = 0;    ///< index into its parts
};
/// The parts that `file` has, in its order: wide types first, so that every value is aligned.
[[nodiscard]] std::vector<FilePart> parts_of(std::span<IndexTensor const> tensors, std::size_t file);

/// What these parts are in the file's header. Offsets are not set.
[[nodiscard]] std::vector<StoredTensor> stored(std::span<IndexTensor const> tensors, std::span<FilePart const> parts);

}  // namespace weft
