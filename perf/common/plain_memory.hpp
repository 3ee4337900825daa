#pragma once

#include <cstddef>

#include "weft/buffer.hpp"

namespace weft::perf {

/// A zero-filled buffer in memory as ordinary programs have it: from the allocator, with pages of the system's choice.
/// Buffer::host() would ask for huge pages, which few programs do, and which the kernel copies between processes up to
/// twice as fast.
/// @throws Error{out_of_memory}
[[nodiscard]] Buffer plain_buffer(std::size_t count, DataType dtype);

}  // namespace weft::perf
