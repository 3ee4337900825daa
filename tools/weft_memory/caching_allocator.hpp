#pragma once

#include <cstdint>
#include <vector>

#include "weft/memory_plan.hpp"

namespace weft::memory_tool {

/// The bytes that an allocator like PyTorch's for GPUs would have taken from the device in the end, if each buffer were
/// allocated when its life begins and freed when it ends. At each moment, frees come before allocations.
///
/// The model: sizes are rounded up to 512 bytes. Requests of up to 1 MiB lie in segments of 2 MiB, those of up to 10
/// MiB in segments of 20 MiB, and larger ones in a segment of their own, rounded up to 2 MiB. A request takes the
/// smallest free block of its kind (at most 1 MiB, or larger) that holds it, and splits off a rest of 512 bytes or more
/// (for the larger kind: more than 1 MiB). Neighbouring free blocks are merged. Segments are never returned to the
/// device. Not modelled: streams, returning free segments when the device is full, expandable segments.
[[nodiscard]] std::int64_t cached_bytes(std::vector<PlannedBuffer> const& buffers);

}  // namespace weft::memory_tool
