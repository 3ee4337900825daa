#pragma once

// Every kernel includes this before Highway. Of x86, AVX-512, AVX2 and the baseline are enough; each further target
// costs compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
