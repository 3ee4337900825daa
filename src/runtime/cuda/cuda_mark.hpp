#pragma once

#include "runtime/cuda/cuda_stream.hpp"
#include "runtime/cuda/event_pool.hpp"

namespace weft::cuda {

/// An EventMark that is a cudaEvent_t, recorded once.
class CudaMark final : public EventMark {
 public:
  /// Records `event` on `stream`.
  CudaMark(CudaStream const& stream, EventPool::Lease event);
  CudaMark(CudaMark const&) = delete;
  CudaMark& operator=(CudaMark const&) = delete;

  /// True also when the stream has failed: synchronize() then says how.
  [[nodiscard]] bool reached() const noexcept override;
  void synchronize() const override;
  /// Does not ask the GPU where `stream` is one of CUDA's, so both streams may be under capture.
  void wait_on(Stream const& stream, std::shared_ptr<EventMark const> const& self) const override;
  [[nodiscard]] std::chrono::nanoseconds elapsed_until(EventMark const& later) const override;

 private:
  int device_;
  CudaFunctions const& cuda_;
  EventPool::Lease event_;
};

}  // namespace weft::cuda
