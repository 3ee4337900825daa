#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/file.hpp"
#include "weft/data_type.hpp"

namespace weft {

/// One tensor of a safetensors file (github.com/huggingface/safetensors). Such a file has 8 bytes with the header's
/// length, little-endian; the header, which is a JSON object of the tensors, padded with spaces; and their values,
/// without gaps.
struct StoredTensor {
  std::string name;
  DataType dtype = DataType::f32;
  std::vector<std::size_t> shape;
  std::size_t count = 0;
  std::uint64_t offset = 0;  ///< bytes from the start of the file

  [[nodiscard]] std::uint64_t bytes() const noexcept { return count * size_of(dtype); }
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;            ///< in the order of their offsets
  std::map<std::string, std::string> metadata;  ///< the object's "__metadata__"
};

/// Returns the bytes that come before the first value, a multiple of 8, and sets the tensors' offsets in the order
/// given. Types must be ones that safetensors has, and names must differ. @throws Error{invalid_argument} naming `path`
/// where the header is longer than readers accept.
[[nodiscard]] std::string encode_safetensors(std::filesystem::path const& path, SafetensorsHeader& header);

/// Reads and checks everything before the values, and that the file is as long as the header says.
/// @throws Error{invalid_argument} naming the file, the tensor and the reason; Error{system}
[[nodiscard]] SafetensorsHeader read_safetensors(File const& file);

}  // namespace weft
