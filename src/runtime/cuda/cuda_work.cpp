#include "runtime/cuda/cuda_work.hpp"

namespace weft::cuda {

std::exception_ptr SharedFailure::look() const noexcept {
  if (is_set() || !elsewhere_) return get();
  try {
    return elsewhere_();
  } catch (...) {  // no memory for the answer
    return std::current_exception();
  }
}

CudaCompletion::CudaCompletion(CudaStream const& stream, cudaEvent_t event, SharedFailure const& failure, bool captured)
    : cuda_(stream.cuda()), event_(event), failure_(failure), captured_(captured) {
  DefaultStreamGuard const guard(stream);
  check(cuda_, cuda_.event_record(event_, stream.handle()), "cudaEventRecord");
}

// A thread that captures may not ask the GPU; then whoever watches over the operation finds out.
bool CudaCompletion::reached() const noexcept {
  if (status_.load(std::memory_order_acquire) != cudaErrorNotReady) return true;
  auto status = cuda_.event_query(event_);
  if (status != cudaSuccess) cuda_.get_last_error();  // or the next launch would report it, also that it is "not ready"
  if (status == cudaErrorNotReady || status == cudaErrorStreamCaptureUnsupported) return false;
  auto unknown = cudaErrorNotReady;
  status_.compare_exchange_strong(unknown, status, std::memory_order_acq_rel);
  return true;
}

std::exception_ptr CudaCompletion::error() const noexcept {
  if (auto failed = failure_.look()) return failed;
  try {
    throw_if_broken();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

bool CudaCompletion::wait_on(Stream const& stream) const {
  CudaStream* const on = as_cuda(stream);
  if (on == nullptr) return false;
  on->launch_deferred();
  DefaultStreamGuard const guard(*on);
  check(cuda_, cuda_.stream_wait_event(on->handle(), event_, 0), "cudaStreamWaitEvent");
  return true;
}

/// An allocator that hands out a slot's memory, and gives the slot back.
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
  // From here on the shared_ptr gives the slot back, even where recording the event fails.
  return std::allocate_shared<CudaWork>(InSlot<CudaWork>(slot), stream, parts.event.get(), *parts.failure, captured);
}

}  // namespace weft::cuda
