#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/memory/sections.hpp"

namespace weft {

/// Places buffers in this order, each at the lowest offset at which it overlaps none before it. Offsets of buffers that
/// are not in `order` are 0.
[[nodiscard]] std::vector<std::int64_t> first_fit(Sections const& sections, std::span<int const> order);

/// The size of a plan: where its highest buffer ends.
[[nodiscard]] std::int64_t bytes_of(Sections const& sections, std::span<std::int64_t const> offsets);

}  // namespace weft
