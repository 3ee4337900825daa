#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "weft/buffer.hpp"
#include "weft/gradients.hpp"
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

/// Zero-filled device memory; 256-byte aligned. Blocks. Freeing it waits for the device, as cudaFree does. Counts in
/// the memory account.
[[nodiscard]] Buffer allocate(std::size_t count, DataType dtype, int device = 0);

/// The same in the order of `stream`, without waiting: zeroed, and there, for what is enqueued on it from now on; on
/// other streams after an Event that was recorded on it. When the Buffer goes, its memory is free for what comes on
/// `stream` after that, see use_on(). Under capture it becomes part of the graph.
[[nodiscard]] Buffer allocate(std::size_t count, DataType dtype, Stream const& stream);

/// What is enqueued on `stream` so far uses `buffer`, which was allocated in another stream's order: its memory is kept
/// until that has run, even if the Buffer goes earlier. Does not wait. Views do not know whose they are: call it before
/// the last owner goes, once for each stream.
/// @throws Error{invalid_argument} for memory of another kind or device.
void use_on(Buffer const& buffer, Stream const& stream);

/// Device memory that was freed and is kept for the next allocations, which then take no longer than enqueuing them. A
/// pool of its own; allocate() takes from the device's. Copies share it; buffers keep it. Thread-safe.
class MemoryPool {
 public:
  static constexpr std::size_t kKeepAll = SIZE_MAX;

  /// `keep_bytes`: what of freed memory is not given back when streams are synchronised.
  explicit MemoryPool(int device = 0, std::size_t keep_bytes = kKeepAll);

  /// As cuda::allocate() in the order of `stream`, which is of the pool's device.
  [[nodiscard]] Buffer allocate(std::size_t count, DataType dtype, Stream const& stream) const;

  struct Usage {
    std::size_t used = 0;      ///< bytes in buffers
    std::size_t reserved = 0;  ///< bytes taken from the device
  };
  [[nodiscard]] Usage usage() const;
  /// Gives back what is free, but for `keep_bytes`.
  void trim(std::size_t keep_bytes = 0) const;

  class Impl;  ///< runtime/cuda/memory_pool.hpp
  explicit MemoryPool(std::shared_ptr<Impl const> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl const> impl_;
};

/// Zero-filled host memory that is page-locked: copies between it and a GPU let the host go on, and can be captured in
/// graphs. Blocks, as freeing it does. Counts in the memory account.
[[nodiscard]] Buffer allocate_pinned(std::size_t count, DataType dtype);

/// Enqueues a copy between host and device, or device and device, on `stream`; both views stay valid until it has run.
/// @throws Error{invalid_argument} when counts or types differ.
void copy(BufferView dst, ConstBufferView src, Stream const& stream);

/// Many tensors of f32, bf16 or f16 on one GPU, which a few launches measure or change all together. Making one
/// allocates and waits; the rest only enqueues on `stream`, allocates nothing, and can be captured in CUDA graphs. What
/// pointers point to is in the GPU's memory, and read when it runs. The tensors outlive it, and it what it has
/// enqueued. Move-only.
///
/// weft/gradients.hpp has functions for gradients on a GPU too; those wait for the GPU before and after.
class GradientList {
 public:
  /// @throws Error{invalid_argument} for tensors on different devices or without memory, Error{unsupported} for another
  /// type or a tensor on the CPU.
  explicit GradientList(std::span<BufferView const> gradients);
  ~GradientList();
  GradientList(GradientList&&) noexcept;
  GradientList& operator=(GradientList&&) noexcept;

  /// Other tensors in the place of these, as many and of as many elements each, for what is enqueued from now on.
  /// Launches nothing where they are the same. @throws Error{invalid_argument} where they are not, and as above.
  void replace(std::span<BufferView const> gradients, Stream const& stream);

  struct MeasureOptions {
    NormType type = NormType::l2;
    float const* inv_scale = nullptr;  ///< multiplies gradients before they are looked at; null: 1
    double max_norm = 0;               ///< for clip(); 0: no clipping
    BufferView found_inf{};            ///< one f32, which becomes 1 where an element is not finite; may be empty
  };
  /// Reads all gradients once and leaves them. The same gradients give the same bits.
  void measure(MeasureOptions const& options, Stream const& stream);
  /// What measure() found: the norm, and clip_factor(norm, max_norm) for StepInputs::clip (1 where not finite).
  [[nodiscard]] float const* norm() const noexcept;
  [[nodiscard]] float const* clip() const noexcept;
  /// Waits for the GPU.
  [[nodiscard]] GradientNorm read_norm() const;

  /// g ← inv_scale·g, and found_inf as above.
  void unscale_and_check(float const* inv_scale, BufferView found_inf, Stream const& stream);
  /// g ← factor·g
  void scale(float const* factor, Stream const& stream);
  /// g ← g within [−limit, limit]; NaN stays.
  void clamp(float limit, Stream const& stream);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Copies many tensors at once, between f32, bf16 and f16, rounded to nearest even: packs buckets and unpacks them.
/// Otherwise as GradientList.
class CopyList {
 public:
  /// to[i] from from[i], which do not overlap. @throws as GradientList, and Error{invalid_argument} where counts
  /// differ.
  CopyList(std::span<BufferView const> from, std::span<BufferView const> to);
  ~CopyList();
  CopyList(CopyList&&) noexcept;
  CopyList& operator=(CopyList&&) noexcept;

  /// One launch: to ← factor·from, e.g. 1 / ranks.
  void run(Stream const& stream, float factor = 1);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::cuda
