#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <utility>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_stream.hpp"
#include "runtime/cuda/event_pool.hpp"
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
  /// Records `event` on `stream`. `captured`: the stream is under capture.
  CudaCompletion(CudaStream const& stream, EventPool::Lease event, std::shared_ptr<SharedFailure const> failure,
                 bool captured);

  /// True also when the stream has failed.
  [[nodiscard]] bool reached() const noexcept override { return is_reached(cuda_, event_.event()); }
  bool wait_on(Stream const& stream) const override;
  [[nodiscard]] bool is_captured() const noexcept override { return captured_; }
  [[nodiscard]] std::exception_ptr error() const noexcept override { return failure_->get(); }
  [[nodiscard]] cudaEvent_t event() const noexcept { return event_.event(); }

 private:
  CudaFunctions const& cuda_;
  EventPool::Lease event_;
  std::shared_ptr<SharedFailure const> failure_;
  bool captured_;
};

/// A Work's state with its completion, in one piece.
struct CudaWork {
  CudaWork(CudaStream const& stream, EventPool::Lease event, std::shared_ptr<SharedFailure const> failure,
           bool captured)
      : completion(stream, std::move(event), std::move(failure), captured) {
    state.attach({std::shared_ptr<void>(), &completion});  // lives as long as the state
  }

  Work::State state;
  CudaCompletion completion;
};

}  // namespace weft::cuda
