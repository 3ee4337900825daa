#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/buffer.hpp"
#include "weft/optimizer_options.hpp"
#include "weft/stream.hpp"

struct CUstream_st;  // cudaStream_t points to one

/// What Weft offers on NVIDIA GPUs; in libraries built with WEFT_WITH_CUDA. Every function restores the calling
/// thread's current device. A failing CUDA call throws Error{system}, or Error{out_of_memory}, naming the call and
/// CUDA's own words.
namespace weft::cuda {

using StreamHandle = CUstream_st*;

/// GPUs that this process can use; 0 where there is no GPU or no driver.
[[nodiscard]] int device_count();

struct StreamOptions {
  int device = 0;
  bool high_priority = false;  ///< for communication: its kernels are scheduled before those of ordinary streams
};

/// A stream of its own, which does not synchronise with the legacy default stream. Work that is still queued when its
/// last copy goes is run nevertheless. @throws Error{invalid_argument} for a device that is not there.
[[nodiscard]] Stream make_stream(StreamOptions const& options = {});

/// Wraps a stream that somebody else owns and keeps alive for as long as any copy of the result.
[[nodiscard]] Stream wrap_stream(StreamHandle handle, int device);

/// The cudaStream_t of a CUDA stream. @throws Error{invalid_argument} for a CPU stream.
[[nodiscard]] StreamHandle handle_of(Stream const& stream);

/// Zero-filled device memory; 256-byte aligned. Blocks. Freeing it waits for the device, as cudaFree does.
[[nodiscard]] Buffer allocate(std::size_t count, DataType dtype, int device = 0);

/// Enqueues a copy between host and device, or device and device, on `stream`; both views stay valid until it has run.
/// @throws Error{invalid_argument} when counts or types differ.
void copy(BufferView dst, ConstBufferView src, Stream const& stream);

/// The tensors of one parameter: f32, equal counts, on the stream's device.
struct AdamWTensors {
  BufferView parameter;
  ConstBufferView gradient;
  BufferView exp_avg;
  BufferView exp_avg_sq;
};

/// Enqueues AdamW's step number `step` (from 1) of one parameter; the formula is AdamWOptions', without amsgrad and
/// maximize.
/// @throws Error{invalid_argument} when tensors, stream or step do not fit, Error{unsupported} for those two.
void adamw(AdamWTensors const& tensors, AdamWOptions const& options, std::int64_t step, Stream const& stream);

}  // namespace weft::cuda
