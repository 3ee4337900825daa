#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <vector>

#include <ATen/Parallel.h>

#include "weft/buffer.hpp"

namespace weft::torch_backend {

/// Elements that a thread takes at a time: a multiple of every SIMD width, and enough to make the cost of taking small.
inline constexpr std::size_t kPart = std::size_t{1} << 18;
/// With fewer elements in all, waking other threads would cost more than they save.
inline constexpr std::size_t kWorthThreads = std::size_t{1} << 15;

[[nodiscard]] inline std::size_t part_count(std::size_t elements) noexcept {
  return std::max<std::size_t>(1, (elements + kPart - 1) / kPart);
}
/// Part `index` of a view that is divided into part_count() parts.
[[nodiscard]] inline BufferView part_of(BufferView const& whole, std::size_t index) noexcept {
  std::size_t const first = index * kPart;
  return whole.slice(first, std::min(kPart, whole.count - first));
}

/// How many of torch's threads for_each_part() uses.
[[nodiscard]] inline int threads_that_take_parts() {
  std::atomic<int> calls{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t, std::int64_t) { ++calls; });
  return calls;
}

/// Calls run(i) once for each i below `count`, on torch's threads; a thread takes the next i when it has finished one.
/// `elements`: the number of elements of all parts together.
template <typename Run>
void for_each_part(std::size_t count, std::size_t elements, Run&& run) {
  if (elements < kWorthThreads) {
    for (std::size_t i = 0; i < count; ++i) run(i);
    return;
  }
  std::atomic<std::size_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t, std::int64_t) {
    for (std::size_t i = next++; i < count; i = next++) run(i);
  });
}

}  // namespace weft::torch_backend
