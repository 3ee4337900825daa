#pragma once

// Included before Highway by every kernel: AVX-512, AVX2 and the baseline are enough of x86, and each target costs
// compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
