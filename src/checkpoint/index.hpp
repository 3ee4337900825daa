#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/checkpoint.hpp"

namespace weft {

inline constexpr char const* kIndexName = "model.safetensors.index.json";
inline constexpr std::size_t kBlockBytes = std::size_t{1} << 20;  ///< that one checksum is of

[[nodiscard]] constexpr std::size_t block_count(std::uint64_t bytes) noexcept {
  return static_cast<std::size_t>((bytes + kBlockBytes - 1) / kBlockBytes);
}

/// Elements [first, first + count) of a tensor, and where they lie.
struct IndexPart {
  std::size_t file = 0;   ///< index into CheckpointIndex::files
  std::string stored_as;  ///< the tensor's name in that file
  std::size_t first = 0;
  std::size_t count = 0;
  std::vector<std::uint64_t> checksums{};  ///< XXH64 of each block of the part
};

struct IndexTensor {
  Checkpoint::Tensor tensor;
  std::vector<IndexPart> parts;  ///< in order of `first`, without gaps
};

/// What the index of a checkpoint says.
struct CheckpointIndex {
  std::string save;                  ///< all files of one save have it in their metadata
  std::vector<std::string> files;    ///< relative to the checkpoint's folder
  std::vector<IndexTensor> tensors;  ///< by name
  CheckpointInfo info;
};

/// What a part is called in its file: the tensor's name, with its range where it is not all of the tensor.
[[nodiscard]] std::string part_name(Checkpoint::Tensor const& tensor, std::size_t first, std::size_t count);

/// @throws Error{invalid_argument} for text that is not UTF-8.
[[nodiscard]] std::string to_json(CheckpointIndex const& index);
/// @throws Error{invalid_argument} naming `path`, tensor and reason for everything that to_json() would not have
/// written.
[[nodiscard]] CheckpointIndex parse_index(std::filesystem::path const& path, std::string const& text);
/// No index is longer, in bytes.
inline constexpr std::uint64_t kLongestIndex = std::uint64_t{1} << 32;

/// What is wrong with the parts' ranges, which together are each element once; empty when nothing is. Sorts them.
[[nodiscard]] std::string sort_and_check(IndexTensor& tensor);

}  // namespace weft
