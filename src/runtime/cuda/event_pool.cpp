#include "runtime/cuda/event_pool.hpp"

#include "runtime/cuda/check.hpp"

namespace weft::cuda {

// Fails only where the context is gone, and its events with it.
EventPool::~EventPool() {
  for (auto const& slot : slots_) {
    if (slot.event != nullptr) static_cast<void>(cuda_.event_destroy(slot.event));
  }
}

cudaEvent_t EventPool::create() const {
  DeviceGuard const guard(device_, cuda_);
  cudaEvent_t event = nullptr;
  check(cuda_, cuda_.event_create_with_flags(&event, flags_), "cudaEventCreateWithFlags");
  return event;
}

EventPool::Lease EventPool::take() {
  auto const first = free_hint_.load(std::memory_order_relaxed);
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    auto const index = (first + probe) % kSlots;
    auto& slot = slots_[index];
    if (slot.taken.load(std::memory_order_relaxed) || slot.taken.exchange(true, std::memory_order_acquire)) continue;
    free_hint_.store((index + 1) % kSlots, std::memory_order_relaxed);
    try {
      if (slot.event == nullptr) slot.event = create();
    } catch (...) {
      slot.taken.store(false, std::memory_order_release);
      throw;
    }
    return {shared_from_this(), index, slot.event};
  }
  free_hint_.store((first + kProbes) % kSlots, std::memory_order_relaxed);
  return {shared_from_this(), kLoose, create()};
}

void EventPool::put_back(std::size_t slot, cudaEvent_t event) noexcept {
  if (slot == kLoose) {
    static_cast<void>(cuda_.event_destroy(event));
    return;
  }
  slots_[slot].taken.store(false, std::memory_order_release);
  free_hint_.store(slot, std::memory_order_relaxed);
}

}  // namespace weft::cuda
