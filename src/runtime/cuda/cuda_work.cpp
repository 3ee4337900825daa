#include "runtime/cuda/cuda_work.hpp"

namespace weft::cuda {

CudaCompletion::CudaCompletion(CudaStream const& stream, cudaEvent_t event, SharedFailure const& failure, bool captured)
    : cuda_(stream.cuda()), event_(event), failure_(failure), captured_(captured) {
  DefaultStreamGuard const guard(stream);
  check(cuda_, cuda_.event_record(event_, stream.handle()), "cudaEventRecord");
}

bool CudaCompletion::wait_on(Stream const& stream) const {
  CudaStream* const on = as_cuda(stream);
  if (on == nullptr) return false;
  on->launch_deferred();
  DefaultStreamGuard const guard(*on);
  check(cuda_, cuda_.stream_wait_event(on->handle(), event_, 0), "cudaStreamWaitEvent");
  return true;
}

/// An allocator whose memory is a slot's, which it gives back.
template <typename T>
struct WorkPool::InSlot {
  using value_type = T;

  explicit InSlot(Slots::Slot* of) noexcept : slot(of) {}
  template <typename U>
  explicit(false) InSlot(InSlot<U> const& other) noexcept : slot(other.slot) {}

  [[nodiscard]] T* allocate(std::size_t /*one*/) noexcept {
    static_assert(sizeof(T) <= Parts::kBytes && alignof(T) <= alignof(std::max_align_t));
    return reinterpret_cast<T*>(slot->thing.memory.data());
  }
  void deallocate(T* /*memory*/, std::size_t /*one*/) noexcept { Slots::give_back(slot); }
  friend bool operator==(InSlot const&, InSlot const&) = default;

  Slots::Slot* slot;
};

std::shared_ptr<CudaWork> WorkPool::make(CudaStream const& stream, std::shared_ptr<SharedFailure> const& failure,
                                         bool captured) {
  auto* const slot = slots_.take();
  auto& parts = slot->thing;
  try {
    parts.event.make(device_, cudaEventDisableTiming, cuda_);
  } catch (...) {
    Slots::give_back(slot);
    throw;
  }
  if (parts.failure != failure) parts.failure = failure;
  // From here on the shared_ptr gives the slot back, also where recording the event fails.
  return std::allocate_shared<CudaWork>(InSlot<CudaWork>(slot), stream, parts.event.get(), *parts.failure, captured);
}

}  // namespace weft::cuda
