#pragma once

#include <cstdint>
#include <vector>

#include "weft/memory_plan.hpp"

namespace weft::memory_tool {

/// Bytes that an allocator like PyTorch's for GPUs would have taken from the device at the end, were each buffer asked
/// for when its life begins and given back when it ends; those given back at a moment go before those asked for at it.
///
/// The model: sizes are rounded up to 512 bytes; up to 1 MiB lie in segments of 2 MiB, up to 10 MiB in such of 20 MiB,
/// larger ones in one of their own, rounded up to 2 MiB. A request takes the smallest free block of its kind (at most
/// 1 MiB, or more) that holds it, and splits off what is left from 512 bytes on (above 1 MiB of larger ones). Free
/// neighbours become one. Segments are not given back. Not modelled: streams, the giving back of free segments where
/// the device is full, expandable segments.
[[nodiscard]] std::int64_t cached_bytes(std::vector<PlannedBuffer> const& buffers);

}  // namespace weft::memory_tool
