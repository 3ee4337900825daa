#pragma once

#include <cstddef>
#include <span>

#include "kernels/cpu/reduce.hpp"

namespace weft::kernels {

/// The arguments of one reduce() or reduce_alike(), passed to the function for its element type.
struct ReduceTask {
  std::span<void* const> dsts;
  std::span<void const* const> srcs;
  std::size_t count;
  DataType dtype;
  Reducer const& how;
  bool streaming;
  std::size_t ranges =
      1;  ///< the pointers of the second lie behind those of the first, and so on; only floats have more
};

/// How many pages to read in turns, over all sources together. Prefetchers stop at page ends and follow 16 streams or
/// more; but lines at the same offset in many pages fall into one set of the first cache. Measured with 12 ways
/// (Sapphire Rapids, which gains from 16 pages; Zen 5, which loses with more than 2) and 8 ways (an older EPYC, where
/// 16 pages take twice the time of 4).
[[nodiscard]] std::size_t pages_at_once() noexcept;

/// Whether 256-bit vectors do as well as 512-bit ones. A core that has not used 512-bit vectors for a while may take
/// more than a microsecond to get them ready (Sapphire Rapids: 1.3 µs for a call made from Python); below 16 KiB they
/// are no faster even in a tight loop.
inline bool is_short(ReduceTask const& task) noexcept {
  return task.ranges * task.count * size_of(task.dtype) < (std::size_t{16} << 10U);
}

void reduce_floats(ReduceTask const& task);         ///< f32 f64
void reduce_narrow_floats(ReduceTask const& task);  ///< f16 bf16
void reduce_byte_floats(ReduceTask const& task);    ///< f8e4m3 f8e5m2
void reduce_integers(ReduceTask const& task);
void reduce_complex_product(ReduceTask const& task);
void reduce_user(ReduceTask const& task);

}  // namespace weft::kernels
