#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_stream.hpp"
#include "runtime/cuda/event_pool.hpp"
#include "runtime/cuda/slot_pool.hpp"
#include "runtime/work_state.hpp"

namespace weft::cuda {

/// A failure that operations share. It is set before the GPU is made to end them, so that whoever finds one of them
/// ended knows that it did not succeed. Any thread.
class SharedFailure {
 public:
  /// Returns a failure that another process has decided and that this one may not have heard of yet; null: none.
  using Elsewhere = std::function<std::exception_ptr()>;

  SharedFailure() = default;
  /// `elsewhere` is called by any thread; it may be empty.
  explicit SharedFailure(Elsewhere elsewhere) noexcept : elsewhere_(std::move(elsewhere)) {}

  /// The first call counts.
  void set(std::exception_ptr error) noexcept {
    if (claimed_.exchange(true)) return;
    error_ = std::move(error);
    set_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }
  /// The failure; null without one.
  [[nodiscard]] std::exception_ptr get() const noexcept { return is_set() ? error_ : nullptr; }
  /// get(), or else a failure from elsewhere. Null only if operations that were found ended before this call have not
  /// failed.
  [[nodiscard]] std::exception_ptr look() const noexcept;

 private:
  Elsewhere const elsewhere_{};
  std::atomic<bool> claimed_{false};
  std::atomic<bool> set_{false};
  std::exception_ptr error_;
};

/// The completion of an operation: it is through when an event that was recorded behind it is.
class CudaCompletion final : public DeviceCompletion {
 public:
  /// Records `event` on `stream`. Both must outlive this, and nobody else may use the event. `captured`: the stream is
  /// under capture.
  CudaCompletion(CudaStream const& stream, cudaEvent_t event, SharedFailure const& failure, bool captured);

  /// True also when the GPU has failed, see is_broken(). The status that was found first stays: an operation that was
  /// through has succeeded, although a GPU that fails later reports an error for all its events.
  [[nodiscard]] bool reached() const noexcept override;
  bool wait_on(Stream const& stream) const override;
  [[nodiscard]] bool is_captured() const noexcept override { return captured_; }
  [[nodiscard]] std::exception_ptr error() const noexcept override;
  /// Whether reached() became true because CUDA reported an error: of what the operation, or anything before it, did to
  /// the GPU.
  [[nodiscard]] bool is_broken() const noexcept {
    auto const status = status_.load(std::memory_order_acquire);
    return status != cudaSuccess && status != cudaErrorNotReady;
  }
  /// @throws Error{system} with that error.
  void throw_if_broken() const {
    if (is_broken()) check(cuda_, status_.load(std::memory_order_acquire), "cudaEventQuery");
  }
  [[nodiscard]] cudaEvent_t event() const noexcept { return event_; }

 private:
  CudaFunctions const& cuda_;
  cudaEvent_t const event_;
  SharedFailure const& failure_;
  bool const captured_;
  mutable std::atomic<cudaError_t> status_{cudaErrorNotReady};  // until another status of the event is found
};

/// A Work's state together with its completion.
struct CudaWork {
  CudaWork(CudaStream const& stream, cudaEvent_t event, SharedFailure const& failure, bool captured)
      : completion(stream, event, failure, captured) {
    state.attach({std::shared_ptr<void>(), &completion});  // it lives as long as the state
  }

  Work::State state;
  CudaCompletion completion;
};

/// Makes Works, each with an event, from the parts of earlier ones, which mostly end on another thread than the one
/// that makes them. Any thread.
class WorkPool {
 public:
  WorkPool(int device, CudaFunctions const& cuda) : device_(device), cuda_(cuda) {}

  /// A Work for what was enqueued on `stream` so far. It may outlive the pool. @throws Error{system}
  [[nodiscard]] std::shared_ptr<CudaWork> make(CudaStream const& stream, std::shared_ptr<SharedFailure> const& failure,
                                               bool captured);

 private:
  /// What a Work is made of.
  struct Parts {
    static constexpr std::size_t kBytes = 224;  ///< a CudaWork and the counters of its shared_ptr

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
