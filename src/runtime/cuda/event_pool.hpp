#pragma once

#include <utility>

#include "runtime/cuda/cuda_functions.hpp"
#include "runtime/cuda/slot_pool.hpp"

namespace weft::cuda {

/// Owns an event, once make() has made one.
class OwnEvent {
 public:
  OwnEvent() = default;
  ~OwnEvent();
  OwnEvent(OwnEvent const&) = delete;
  OwnEvent& operator=(OwnEvent const&) = delete;

  /// Makes the event, the first time. @throws Error{system} when CUDA has no more.
  void make(int device, unsigned flags, CudaFunctions const& cuda) {
    if (event_ == nullptr) [[unlikely]]
      create(device, flags, cuda);
  }
  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }

 private:
  void create(int device, unsigned flags, CudaFunctions const& cuda);

  CudaFunctions const* cuda_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

/// Events that are used again once nobody holds them, because creating one costs as much as a small collective's
/// launch. Any thread takes and returns them.
class EventPool {
  using Slots = SlotPool<OwnEvent>;

 public:
  /// An event that nobody else uses while this lives; it may live longer than the pool. Move-only.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(slot_, other.slot_);
      return *this;
    }
    Lease(Lease const&) = delete;
    Lease& operator=(Lease const&) = delete;
    ~Lease() {
      if (slot_ != nullptr) Slots::give_back(slot_);
    }

    [[nodiscard]] cudaEvent_t event() const noexcept { return slot_->thing.get(); }

   private:
    friend class EventPool;
    explicit Lease(Slots::Slot* slot) noexcept : slot_(slot) {}

    Slots::Slot* slot_ = nullptr;
  };

  /// A pool of events of `device`, with the flags of cudaEventCreateWithFlags.
  EventPool(int device, unsigned flags, CudaFunctions const& cuda) : device_(device), flags_(flags), cuda_(cuda) {}

  /// @throws Error{system} when CUDA has no more.
  [[nodiscard]] Lease take() {
    Lease lease(slots_.take());
    lease.slot_->thing.make(device_, flags_, cuda_);
    return lease;
  }

 private:
  int const device_;
  unsigned const flags_;
  CudaFunctions const& cuda_;
  Slots slots_;
};

}  // namespace weft::cuda
