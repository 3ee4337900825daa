#pragma once

#include <cstddef>

#include "weft/buffer.hpp"

namespace weft::perf {

/// Zeros in memory as programs have it: from the allocator, in pages of the system's choice. Buffer::host() asks for
/// huge pages, which the kernel copies between processes up to twice as fast; few programs do that.
/// @throws Error{out_of_memory}
[[nodiscard]] Buffer plain_buffer(std::size_t count, DataType dtype);

}  // namespace weft::perf
