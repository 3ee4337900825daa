#pragma once

#include <cstddef>

#include "collectives/shm/segment.hpp"

namespace weft::shm {

/// How long a cache line takes there and back between ranks that have cores of their own: nanoseconds, rounded up to a
/// power of four. That is 64 within one cache, 256 on one chip, and 1024 between chips or between caches of one. The
/// costs of the algorithms depend on it more than on anything else. It is measured at each start, because cores with
/// the same numbers may lie at other distances then, as a virtual machine's do. 0: it cannot be told, because something
/// else runs on these cores.
///
/// Collective. Rank 0 exchanges lines with each other rank in turn and returns the distance of the furthest; the others
/// return 0. Takes 0.1 ms for each rank, and waits some 20 ms for one that does not come.
[[nodiscard]] std::size_t measure_distance(int rank, int size, Exchange const& exchange);

/// Shared memory that measure_distance() takes for each rank.
[[nodiscard]] std::size_t distance_bytes() noexcept;

/// The least power of four, from 64 on, that is no less than `ns`.
[[nodiscard]] std::size_t distance_class(double ns) noexcept;

}  // namespace weft::shm
