#pragma once

#include <cuda_runtime_api.h>

#include "runtime/cuda/cuda_stream.hpp"

namespace weft::cuda {

/// A cudaEvent_t recorded once.
class CudaMark final : public EventMark {
 public:
  explicit CudaMark(CudaStream const& stream);
  ~CudaMark() override;
  CudaMark(CudaMark const&) = delete;
  CudaMark& operator=(CudaMark const&) = delete;

  /// True also when the stream has failed: synchronize() then says how.
  [[nodiscard]] bool reached() const noexcept override;
  void synchronize() const override;
  void wait_on(Stream const& stream, std::shared_ptr<EventMark const> const& self) const override;
  [[nodiscard]] std::chrono::nanoseconds elapsed_until(EventMark const& later) const override;

 private:
  int device_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace weft::cuda
