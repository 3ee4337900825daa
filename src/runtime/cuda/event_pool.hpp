#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/cuda/cuda_functions.hpp"

namespace weft::cuda {

/// Events that are used again once nobody holds them: creating one costs as much as a small collective's launch. No
/// locks; any thread takes and returns.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  /// An event that nobody else uses while this lives. Move-only; keeps the pool alive.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : pool_(std::move(other.pool_)), slot_(other.slot_), event_(std::exchange(other.event_, nullptr)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(slot_, other.slot_);
      std::swap(event_, other.event_);
      return *this;
    }
    Lease(Lease const&) = delete;
    Lease& operator=(Lease const&) = delete;
    ~Lease() {
      if (event_ != nullptr) pool_->put_back(slot_, event_);
    }

    [[nodiscard]] cudaEvent_t event() const noexcept { return event_; }
    explicit operator bool() const noexcept { return event_ != nullptr; }

   private:
    friend class EventPool;
    Lease(std::shared_ptr<EventPool> pool, std::size_t slot, cudaEvent_t event) noexcept
        : pool_(std::move(pool)), slot_(slot), event_(event) {}

    std::shared_ptr<EventPool> pool_;
    std::size_t slot_ = 0;
    cudaEvent_t event_ = nullptr;
  };

  /// Of `device`, with the flags of cudaEventCreateWithFlags.
  EventPool(int device, unsigned flags, CudaFunctions const& cuda) noexcept
      : device_(device), flags_(flags), cuda_(cuda) {}
  ~EventPool();
  EventPool(EventPool const&) = delete;
  EventPool& operator=(EventPool const&) = delete;

  /// @throws Error{system} when CUDA has no more.
  [[nodiscard]] Lease take();
  [[nodiscard]] CudaFunctions const& cuda() const noexcept { return cuda_; }

 private:
  static constexpr std::size_t kSlots = 512;
  static constexpr std::size_t kProbes = 16;     ///< slots looked at before another event is made
  static constexpr std::size_t kLoose = kSlots;  ///< of events that go when they come back

  struct Slot {
    std::atomic<bool> taken{false};
    cudaEvent_t event = nullptr;  ///< of whoever has taken the slot
  };

  [[nodiscard]] cudaEvent_t create() const;
  void put_back(std::size_t slot, cudaEvent_t event) noexcept;

  int const device_;
  unsigned const flags_;
  CudaFunctions const& cuda_;
  std::array<Slot, kSlots> slots_;
  std::atomic<std::size_t> free_hint_{0};  ///< a slot that was returned lately
};

}  // namespace weft::cuda
