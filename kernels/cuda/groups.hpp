#pragma once

#include <cstdint>

#include "kernels/cuda/block.hpp"

namespace weft::kernels::cuda {

/// The number of elements that a thread takes at a time, as a type.
template <int kCount>
struct Width {
  static constexpr int kLanes = kCount;
};

/// Calls f(Width<kCount>, first element) for `thread`'s groups of kCount among `count` elements, then f(Width<1>,
/// element) for its elements among those left over. Neighbouring threads get neighbouring groups.
template <unsigned kThreads, int kCount, typename F>
WEFT_KERNEL void for_each_group(unsigned thread, std::uint32_t count, F const& f) {
  std::uint32_t const groups = count / kCount;
  for (std::uint32_t group = thread; group < groups; group += kThreads) f(Width<kCount>(), group * kCount);
  for (std::uint32_t i = groups * kCount + thread; i < count; i += kThreads) f(Width<1>(), i);
}

}  // namespace weft::kernels::cuda
