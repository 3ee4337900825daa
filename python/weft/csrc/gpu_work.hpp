#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Event.h>

#include "aftermath.hpp"
#include "device.hpp"
#include "weft/work.hpp"
#include "work.hpp"

namespace weft::torch_backend {

/// torch's handle of one call on a GPU's stream. As in torch's own back end for GPUs, wait() makes the calling thread's
/// current stream wait while the host goes on; with a time limit, the host waits. The call's tensors are kept until the
/// stream that the call was made from waits for it. If no stream waits, or another one does, their memory is kept until
/// the GPU has finished with it.
class GpuWork final : public c10d::Work {
 public:
  struct Call {
    std::shared_ptr<GpuStreams> streams;
    c10::Stream from;       ///< current when it was made
    c10::Stream on;         ///< where it runs
    weft::Work core{};      ///< Weft's
    bool lands = false;     ///< work that puts results in place follows it on the stream
    bool holds_up = false;  ///< a barrier: waiting for it blocks the host
    std::uint64_t sequence = 0;
  };
  /// Made after the call is enqueued; for the profiler, the call ends with that. `inputs` are shown to the profiler.
  GpuWork(int rank, Operation const& what, Call call, at::TensorList results, at::TensorList inputs,
          std::shared_ptr<Aftermath> aftermath, bool profiled);
  ~GpuWork() override;
  GpuWork(GpuWork const&) = delete;
  GpuWork& operator=(GpuWork const&) = delete;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  std::vector<at::Tensor> result() override { return results_; }
  /// The future is complete at once, in stream order: callbacks chained to it run on streams that wait.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return call_.sequence; }
  void abort() override;
  int sourceRank() const override { return source_; }
  void set_source(int rank) noexcept { source_ = rank; }

 private:
  [[nodiscard]] bool landed() const { return !landed_ || landed_->query(); }
  void wait_on_host(std::optional<std::chrono::milliseconds> limit) const;
  void let_go(c10::Stream waits);
  /// Records the use for torch's allocator, which reuses freed memory on the stream for which it was allocated.
  void record_use(std::vector<at::Tensor> const& inputs) const;

  char const* const name_;
  Call const call_;
  std::vector<at::Tensor> const results_;
  std::shared_ptr<Aftermath> const aftermath_;
  std::optional<c10::Event> landed_;  ///< only if the call lands
  int source_ = -1;
  // Under mutex_.
  bool waited_ = false;
  std::vector<at::Tensor> kept_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace weft::torch_backend
