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

/// torch's handle of one call on a GPU's stream, as its own back end for GPUs has it: wait() makes the calling thread's
/// current stream wait, and the host goes on. With a time limit it is the host that waits. The call's tensors stay
/// until the stream that the call was made from waits; if none does, or another, their memory stays until the GPU is
/// through with it.
class GpuWork final : public c10d::Work {
 public:
  struct Call {
    std::shared_ptr<GpuStreams> streams;
    c10::Stream from;       ///< current when it was made
    c10::Stream on;         ///< where it runs
    weft::Work core{};      ///< Weft's
    bool lands = false;     ///< something comes on the stream behind it, by which results come to their places
    bool holds_up = false;  ///< whoever waits for it waits on the host: a barrier
    std::uint64_t sequence = 0;
  };
  /// Made once the call is enqueued, with which it ends for the profiler. `inputs` are shown to that.
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
  /// Complete at once, in the order of the stream: what is chained to it runs on streams that wait.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return call_.sequence; }
  void abort() override;
  int sourceRank() const override { return source_; }
  void set_source(int rank) noexcept { source_ = rank; }

 private:
  [[nodiscard]] bool landed() const { return !landed_ || landed_->query(); }
  void wait_on_host(std::optional<std::chrono::milliseconds> limit) const;
  void let_go(c10::Stream waits);
  /// Torch gives freed memory to what comes next on the stream that it was allocated for.
  void record_use(std::vector<at::Tensor> const& inputs) const;

  char const* const name_;
  Call const call_;
  std::vector<at::Tensor> const results_;
  std::shared_ptr<Aftermath> const aftermath_;
  std::optional<c10::Event> landed_;  ///< only of a call that lands
  int source_ = -1;
  // Under mutex_.
  bool waited_ = false;
  std::vector<at::Tensor> kept_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace weft::torch_backend
