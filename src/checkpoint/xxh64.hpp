#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

/// XXH64 with seed 0, as the public specification of xxHash defines it: finds damage, not forgery.
[[nodiscard]] std::uint64_t xxh64(std::span<std::byte const> data) noexcept;

}  // namespace weft
