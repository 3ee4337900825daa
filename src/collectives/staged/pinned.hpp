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

/// Pinned host memory of `bytes`, zeroed. @throws Error{out_of_memory|system}
[[nodiscard]] std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes, cuda::CudaFunctions const& cuda);

/// Pinned memory of any size that is used again: pinning takes longer than most messages. Any thread.
class PinnedPool {
 public:
  explicit PinnedPool(cuda::CudaFunctions const& cuda) : free_(std::make_shared<Free>()), cuda_(cuda) {}

  /// Goes back with its last owner, who may outlive the pool. Not zeroed.
  [[nodiscard]] std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  static constexpr unsigned kSmallest = 16;  // 64 KiB, in powers of two
  struct Free {
    std::mutex mutex;
    std::array<std::vector<std::shared_ptr<std::byte>>, 64> blocks;  // by power of two
  };
  std::shared_ptr<Free> free_;
  cuda::CudaFunctions const& cuda_;
};

/// How far steps have come, in pinned memory: each word is written by one side and waited for by the other. Steps are
/// numbered from 1; numbers may wrap.
class Signals {
 public:
  explicit Signals(cuda::CudaFunctions const& cuda);

  [[nodiscard]] std::uint32_t* copied() const noexcept { return word(0); }     ///< by the GPU: the step is in its slot
  [[nodiscard]] std::uint32_t* exchanged() const noexcept { return word(1); }  ///< by the host: its result is
  [[nodiscard]] std::uint32_t* landed() const noexcept { return word(2); }     ///< by the GPU: the result is back
  /// By the GPU, of jobs whose plan goes inside: the call's stream is where the call is. Told for the first step.
  [[nodiscard]] std::uint32_t* reached() const noexcept { return word(3); }

  static void set(std::uint32_t* word, std::uint32_t step) noexcept {
    std::atomic_ref(*word).store(step, std::memory_order_release);
  }
  [[nodiscard]] static bool has_reached(std::uint32_t* word, std::uint32_t step) noexcept {
    return static_cast<std::int32_t>(std::atomic_ref(*word).load(std::memory_order_acquire) - step) >= 0;
  }

 private:
  static constexpr std::size_t kWords = 4;
  static constexpr std::size_t kApart = 128;  // bytes: no two in the cache lines that are fetched together
  [[nodiscard]] std::uint32_t* word(std::size_t index) const noexcept {
    return reinterpret_cast<std::uint32_t*>(memory_.get() + index * kApart);
  }
  std::shared_ptr<std::byte> memory_;
};

}  // namespace weft::staged
