#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "checkpoint/safetensors.hpp"

namespace weft {

/// Writes a rank's file and returns once it is on the disk: the header, then `values`, which has the values of its
/// tensors one after the other. Returns the checksums of every tensor's blocks, in the same order.
/// @throws Error{system}
[[nodiscard]] std::vector<std::uint64_t> write_shard(std::filesystem::path const& path, SafetensorsHeader header,
                                                     std::span<std::byte const> values);

}  // namespace weft
