#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <utility>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_stream.hpp"
#include "runtime/cuda/event_pool.hpp"
#include "runtime/cuda/slot_pool.hpp"
#include "runtime/work_state.hpp"

namespace weft::cuda {

/// A failure that operations share, once there is one: set before the GPU is made to end them, so that who finds one
/// ended knows that it did not succeed. Any thread.
class SharedFailure {
 public:
  /// The first one counts.
  void set(std::exception_ptr error) noexcept {
    if (claimed_.exchange(true)) return;
    error_ = std::move(error);
    set_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }
  /// Null without one.
  [[nodiscard]] std::exception_ptr get() const noexcept { return is_set() ? error_ : nullptr; }

 private:
  std::atomic<bool> claimed_{false};
  std::atomic<bool> set_{false};
  std::exception_ptr error_;
};

/// An operation is through when an event that was recorded behind it is.
class CudaCompletion final : public DeviceCompletion {
 public:
  /// Records `event` on `stream`; it is this one's alone, and both outlive it. `captured`: the stream is under capture.
  CudaCompletion(CudaStream const& stream, cudaEvent_t event, SharedFailure const& failure, bool captured);

  /// True also when the stream has failed.
  [[nodiscard]] bool reached() const noexcept override { return is_reached(cuda_, event_); }
  bool wait_on(Stream const& stream) const override;
  [[nodiscard]] bool is_captured() const noexcept override { return captured_; }
  [[nodiscard]] std::exception_ptr error() const noexcept override { return failure_.get(); }
  [[nodiscard]] cudaEvent_t event() const noexcept { return event_; }

 private:
  CudaFunctions const& cuda_;
  cudaEvent_t const event_;
  SharedFailure const& failure_;
  bool const captured_;
};

/// A Work's state with its completion, in one piece.
struct CudaWork {
  CudaWork(CudaStream const& stream, cudaEvent_t event, SharedFailure const& failure, bool captured)
      : completion(stream, event, failure, captured) {
    state.attach({std::shared_ptr<void>(), &completion});  // lives as long as the state
  }

  Work::State state;
  CudaCompletion completion;
};

/// Makes Works, each with an event, of what earlier ones were made of: they mostly end on another thread than the one
/// that makes them. Any thread.
class WorkPool {
 public:
  WorkPool(int device, CudaFunctions const& cuda) : device_(device), cuda_(cuda) {}

  /// Of what was enqueued on `stream` so far. It may outlive the pool. @throws Error{system}
  [[nodiscard]] std::shared_ptr<CudaWork> make(CudaStream const& stream, std::shared_ptr<SharedFailure> const& failure,
                                               bool captured);

 private:
  /// What a Work is made of.
  struct Parts {
    static constexpr std::size_t kBytes = 224;  ///< a CudaWork and what a shared_ptr counts by

    OwnEvent event;
    std::shared_ptr<SharedFailure> failure;
    alignas(std::max_align_t) std::array<std::byte, kBytes> memory;
  };
  using Slots = SlotPool<Parts>;
  template <typename T>
  struct InSlot;

  int const device_;
  CudaFunctions const& cuda_;
  Slots slots_;
};

}  // namespace weft::cuda
