#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/cuda/cuda_functions.hpp"

namespace weft::staged {

/// `bytes` of zeroed host memory, pinned for `device`. @throws Error{out_of_memory|system}
[[nodiscard]] std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes, int device,
                                                         cuda::CudaFunctions const& cuda);

/// Pinned memory of any size, reused because pinning takes longer than most messages. Any thread.
class PinnedPool {
 public:
  PinnedPool(int device, cuda::CudaFunctions const& cuda)
      : free_(std::make_shared<Free>()), device_(device), cuda_(cuda) {}

  /// Takes memory of at least `bytes`, not zeroed. It returns to the pool with its last owner, which may outlive the
  /// pool.
  [[nodiscard]] std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  static constexpr unsigned kSmallest = 16;  // 64 KiB, in powers of two
  struct Free {
    std::mutex mutex;
    std::array<std::vector<std::shared_ptr<std::byte>>, 64> blocks;  // by power of two
  };
  std::shared_ptr<Free> free_;
  int const device_;
  cuda::CudaFunctions const& cuda_;
};

/// How far steps have come, as words in pinned memory: the GPU or the host writes each word, and the other waits for it
/// or reads it. Steps are numbered from 1; the numbers may wrap around.
class Signals {
 public:
  Signals(int device, cuda::CudaFunctions const& cuda);

  [[nodiscard]] std::uint32_t* copied() const noexcept { return word(0); }     ///< by the GPU: data is in the slot
  [[nodiscard]] std::uint32_t* exchanged() const noexcept { return word(1); }  ///< by the host: the result is there
  [[nodiscard]] std::uint32_t* landed() const noexcept { return word(2); }     ///< by the GPU: the result is back
  /// By the GPU, for jobs whose plan goes inside: the call's stream has come to the call. Written with the job's first
  /// step.
  [[nodiscard]] std::uint32_t* reached() const noexcept { return word(3); }

  static void set(std::uint32_t* word, std::uint32_t step) noexcept {
    std::atomic_ref(*word).store(step, std::memory_order_release);
  }
  [[nodiscard]] static bool has_reached(std::uint32_t* word, std::uint32_t step) noexcept {
    return static_cast<std::int32_t>(std::atomic_ref(*word).load(std::memory_order_acquire) - step) >= 0;
  }

 private:
  static constexpr std::size_t kWords = 4;
  static constexpr std::size_t kApart = 128;  // bytes: no two words in cache lines that are fetched together
  [[nodiscard]] std::uint32_t* word(std::size_t index) const noexcept {
    return reinterpret_cast<std::uint32_t*>(memory_.get() + index * kApart);
  }
  std::shared_ptr<std::byte> memory_;
};

}  // namespace weft::staged
