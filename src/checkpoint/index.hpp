#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/checkpoint.hpp"

namespace weft {

inline constexpr char const* kIndexName = "model.safetensors.index.json";
inline constexpr std::size_t kBlockBytes = std::size_t{1} << 20;  ///< bytes that one checksum covers

[[nodiscard]] constexpr std::size_t block_count(std::uint64_t bytes) noexcept {
  return static_cast<std::size_t>((bytes + kBlockBytes - 1) / kBlockBytes);
}

/// One stored part of a tensor: elements [first, first + count), and where they lie.
struct IndexPart {
  std::size_t file = 0;   ///< index into CheckpointIndex::files
  std::string stored_as;  ///< the tensor's name in that file
  std::size_t first = 0;
  std::size_t count = 0;
  std::vector<std::uint64_t> checksums{};  ///< XXH64 of each block of the part, kBlockBytes each
};

struct IndexTensor {
  Checkpoint::Tensor tensor;
  std::vector<IndexPart> parts;  ///< ordered by `first`, without gaps
};

/// What the index of a checkpoint says.
struct CheckpointIndex {
  std::string save;                  ///< the save's id, which all its files have in their metadata
  std::vector<std::string> files;    ///< relative to the checkpoint's folder
  std::vector<IndexTensor> tensors;  ///< sorted by name
  CheckpointInfo info;
};

/// A part's name in its file: the tensor's name, followed by the range unless that is the whole tensor.
[[nodiscard]] std::string part_name(Checkpoint::Tensor const& tensor, std::size_t first, std::size_t count);

/// The index as JSON. @throws Error{invalid_argument} for text that is not UTF-8.
[[nodiscard]] std::string to_json(CheckpointIndex const& index);
/// The inverse of to_json(). @throws Error{invalid_argument} naming `path`, tensor and reason for everything that
/// to_json() would not have written.
[[nodiscard]] CheckpointIndex parse_index(std::filesystem::path const& path, std::string const& text);
/// The longest that an index may be, in bytes.
inline constexpr std::uint64_t kLongestIndex = std::uint64_t{1} << 32;

/// Sorts a tensor's parts. Returns what is wrong with their ranges, which together must contain each element once;
/// empty when nothing is.
[[nodiscard]] std::string sort_and_check(IndexTensor& tensor);

}  // namespace weft
