#pragma once

/// Marks functions that CPU and GPU code share. Their arithmetic is written out (fma where one rounding is meant) and
/// compiled without contraction, so that both round alike.
#ifdef __CUDACC__
#define WEFT_HOST_DEVICE __host__ __device__
#else
#define WEFT_HOST_DEVICE
#endif
