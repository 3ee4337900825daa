// Which vectors short reductions use; included once per SIMD target.
#include <hwy/highway.h>

#include "kernels/cpu/reduce_task.hpp"

// The first statement of a kernel: on targets with 512-bit vectors, it passes a short task to the same kernel for 256
// bits. Results are the same on every target. Highway compiles AVX2 before AVX-512, unless AVX2 is the target of all
// code.
#undef WEFT_LEAVE_SHORT_TO_AVX2
#if HWY_TARGET <= HWY_AVX3 && (HWY_TARGETS & HWY_AVX2) != 0 && HWY_STATIC_TARGET != HWY_AVX2
#define WEFT_LEAVE_SHORT_TO_AVX2(kernel, task) \
  if (is_short(task)) return N_AVX2::kernel(task)
#else
#define WEFT_LEAVE_SHORT_TO_AVX2(kernel, task) static_cast<void>(0)
#endif
