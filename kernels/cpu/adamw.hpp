#pragma once

#include <cstddef>

#include "kernels/adamw_math.hpp"

namespace weft::kernels {

/// One pass over four f32 arrays of `count` elements: reads gradient, updates the other three. Any alignment; the
/// arrays do not overlap. An element's bits do not depend on count or alignment. Thread-safe, does not allocate.
void adamw(float* parameter, float const* gradient, float* exp_avg, float* exp_avg_sq, std::size_t count,
           AdamWScalars const& scalars);

/// The same loads and stores without arithmetic, for measuring: the bandwidth that adamw() is compared with. The
/// arrays' contents change places.
void adamw_traffic(float* parameter, float const* gradient, float* exp_avg, float* exp_avg_sq, std::size_t count);

}  // namespace weft::kernels
