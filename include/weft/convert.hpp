#pragma once

#include "weft/buffer.hpp"

namespace weft {

/// to[i] = from[i], rounded to nearest, ties to even: between real floating-point types on the CPU, through f32 (where
/// types are equal: exactly), f32, bf16 and f16 as fast as memory goes; or between those three on one GPU, whose work
/// it waits for before and after, or between a GPU and the host, by way of a copy there. The views do not overlap.
/// Blocks, allocates nothing on the CPU alone; thread-safe on different memory. @throws Error{invalid_argument} where
/// counts differ or memory is missing, Error{unsupported} for another type or device.
void convert(ConstBufferView from, BufferView to);

}  // namespace weft
