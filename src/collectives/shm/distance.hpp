#pragma once

#include <cstddef>

#include "collectives/shm/segment.hpp"

namespace weft::shm {

/// How long a line takes between ranks that have cores of their own, there and back, as the power of four nanoseconds
/// that it is within: 64 within one cache, 256 on one chip, 1024 between chips or caches of one. What the algorithms
/// cost depends on it more than on anything else; cores with the same numbers may lie at different distances from one
/// start to the next, as a virtual machine's do. 0: it cannot be told, as somebody else runs on these cores.
///
/// Collective. Rank 0 exchanges lines with each other rank in turn, and its answer, the furthest, counts; the others'
/// is 0. Takes 0.1 ms for each rank, and waits some 20 ms for one that does not come.
[[nodiscard]] std::size_t measure_distance(int rank, int size, Exchange const& exchange);

/// Shared memory that this takes of each rank.
[[nodiscard]] std::size_t distance_bytes() noexcept;

/// The power of four from 64 on that `ns` is within.
[[nodiscard]] std::size_t distance_class(double ns) noexcept;

}  // namespace weft::shm
