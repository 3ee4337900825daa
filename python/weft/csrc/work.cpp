#include "work.hpp"

#include <c10/util/Exception.h>

namespace weft::torch_backend {
namespace {

/// As torch's other back ends: the tensors of the call, whatever their number.
void complete(c10::ivalue::Future& future, std::vector<at::Tensor> const& results, std::exception_ptr const& error) {
  if (error) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(results));
  }
}

}  // namespace

ProcessGroupWork::ProcessGroupWork(int rank, Operation const& what, std::uint64_t sequence,
                                   std::vector<at::Tensor> results, std::vector<at::Tensor> const& inputs,
                                   bool profiled)
    : Work(rank, what.type, profiled ? what.title : nullptr,
           profiled ? std::optional<std::vector<at::Tensor>>(inputs) : std::nullopt),
      sequence_(sequence),
      name_(what.name),
      results_(std::move(results)) {}

void ProcessGroupWork::finish_inline() {
  completed_ = true;
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
}

void ProcessGroupWork::finish_elsewhere(std::exception_ptr error, Notify const& notify) {
  finish(error);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::lock_guard<std::mutex> const lock(mutex_);
    future = future_;
    kept_.clear();
  }
  if (future) notify([future, results = results_, error] { complete(*future, results, error); });
}

bool ProcessGroupWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (timeout == kNoTimeout) {
    cv_.wait(lock, [this] { return completed_; });
  } else if (!cv_.wait_for(lock, timeout, [this] { return completed_; })) {
    auto const message = c10::str("weft: rank ", rank_, ": ", name_, ": not complete after waiting for ",
                                  timeout.count(), " ms; the operation goes on");
    C10_THROW_ERROR(DistBackendError, message);
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> ProcessGroupWork::getFuture() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  auto const future = future_;
  auto const done = completed_;
  auto const error = exception_;
  lock.unlock();
  if (done) complete(*future, results_, error);
  return future;
}

void ProcessGroupWork::abort() {
  TORCH_CHECK(false, "weft: rank ", rank_, ": ", name_, ": a single operation cannot be aborted; abort the group");
}

}  // namespace weft::torch_backend
