#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "aftermath.hpp"
#include "weft/messenger.hpp"
#include "weft/stream.hpp"

namespace weft::torch_backend {

/// How torch names a call: to the profiler, in Work objects, in messages.
struct Operation {
  c10d::OpType type;
  char const* name;   ///< "all_reduce"
  char const* title;  ///< "weft:all_reduce"
};

/// torch's handle of one call. Keeps the call's tensors alive until it is gone.
class ProcessGroupWork final : public c10d::Work {
 public:
  /// `tensors` are the results; `inputs` are shown to the profiler.
  ProcessGroupWork(int rank, Operation const& what, std::uint64_t sequence, at::TensorList results,
                   at::TensorList inputs, bool profiled);

  /// A thread that waits may itself run what is queued on `stream` up to the call's end.
  void runs_on(std::weak_ptr<Stream> stream) { stream_ = std::move(stream); }
  /// Also keeps `tensors` alive.
  void keep(at::TensorList tensors) { kept_ = tensors.vec(); }

  /// Ends a call that ran on the caller's thread, before any other thread has seen the Work.
  void finish_inline();
  /// Ends a call that ran on another thread.
  void finish_elsewhere(std::exception_ptr error, Aftermath& aftermath);
  /// The same while Python exits: waiting threads go on, but no tensor is released and no future completes.
  void finish_at_exit(std::exception_ptr error) { finish(std::move(error)); }

  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }
  void abort() override;
  int sourceRank() const override { return source_; }
  void set_source(int rank) noexcept { source_ = rank; }

 private:
  std::uint64_t const sequence_;
  char const* const name_;
  std::vector<at::Tensor> const results_;
  std::vector<at::Tensor> kept_;
  std::weak_ptr<Stream> stream_;  ///< weak, because the group's stream ends with the group
  // Under mutex_. The future is completed by whichever first finds the call complete: getFuture() or
  // finish_elsewhere().
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  c10::intrusive_ptr<c10::ivalue::Future> unfinished_;
  int source_ = -1;
};

/// torch's handle of messages. Their memory is kept until they are complete, even without this handle.
class MessageWork final : public c10d::Work {
 public:
  MessageWork(int rank, Operation const& what, std::vector<at::Tensor> tensors,
              std::vector<Messenger::Request> requests, std::shared_ptr<Aftermath> aftermath, bool profiled);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override { return tensors_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  [[nodiscard]] std::exception_ptr failure() const;

  char const* const name_;
  std::vector<at::Tensor> const tensors_;
  std::vector<Messenger::Request> const requests_;
  std::shared_ptr<Aftermath> const aftermath_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // under mutex_
};

}  // namespace weft::torch_backend
