#include "gpu_work.hpp"

#include <c10/util/Exception.h>

namespace weft::torch_backend {

GpuWork::GpuWork(int rank, Operation const& what, Call call, at::TensorList results, at::TensorList inputs,
                 std::shared_ptr<Aftermath> aftermath, bool profiled)
    : Work(rank, what.type, profiled ? what.title : nullptr,
           profiled ? std::optional<std::vector<at::Tensor>>(inputs.vec()) : std::nullopt),
      name_(what.name),
      call_(std::move(call)),
      results_(results.vec()),
      aftermath_(std::move(aftermath)) {
  if (inputs.data() != results.data()) kept_ = inputs.vec();
  if (call_.lands) landed_.emplace(call_.on.device_type()).record(call_.on);
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
}

GpuWork::~GpuWork() {
  if (waited_) return;
  try {
    record_use(kept_);
  } catch (std::exception const& error) {
    TORCH_WARN("weft: rank ", rank_, ": ", name_, ": its tensors' memory may be used again early: ", error.what());
  }
}

bool GpuWork::isCompleted() {
  return call_.core.test() && landed();
}

bool GpuWork::isSuccess() const {
  return exception() == nullptr;
}

std::exception_ptr GpuWork::exception() const {
  return aftermath_->translated(call_.core.known_error());
}

void GpuWork::wait_on_host(std::optional<std::chrono::milliseconds> limit) const {
  try {
    if (!limit) {
      call_.core.wait();
    } else if (!call_.core.wait_for(*limit)) {
      auto const message = c10::str("weft: rank ", rank_, ": ", name_, ": not complete after waiting for ",
                                    limit->count(), " ms; the operation goes on");
      C10_THROW_ERROR(DistBackendError, message);
    }
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
  if (landed_) landed_->synchronize();
}

bool GpuWork::wait(std::chrono::milliseconds timeout) {
  if (timeout != kNoTimeout) {
    wait_on_host(timeout);
  } else if (call_.holds_up) {
    wait_on_host(std::nullopt);
  }
  synchronize();
  return true;
}

// Does not ask the GPU: under capture nobody may.
void GpuWork::synchronize() {
  if (auto const error = exception()) std::rethrow_exception(error);
  auto const stream = call_.streams->current();
  if (stream != call_.on) {
    call_.core.wait_on(call_.streams->weft(stream));
    if (landed_) landed_->block(stream);
  }
  let_go(stream);
}

void GpuWork::record_use(std::vector<at::Tensor> const& inputs) const {
  for (auto const& tensor : results_) call_.streams->record_use(tensor, call_.on);
  for (auto const& tensor : inputs) call_.streams->record_use(tensor, call_.on);
}

void GpuWork::let_go(c10::Stream waits) {
  std::vector<at::Tensor> kept;
  std::lock_guard<std::mutex> const lock(mutex_);
  if (waited_) return;
  if (waits != call_.from) record_use(kept_);
  waited_ = true;
  kept.swap(kept_);
}

c10::intrusive_ptr<c10::ivalue::Future> GpuWork::getFuture() {
  std::lock_guard<std::mutex> const lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                     std::vector<c10::Device>{call_.on.device()});
  if (auto const error = exception()) {
    future_->setError(error);
  } else {
    OnStream const there(call_.on);  // whose end so far is what the future stands for
    future_->markCompleted(c10::IValue(results_));
  }
  return future_;
}

void GpuWork::abort() {
  TORCH_CHECK(false, "weft: rank ", rank_, ": ", name_, ": a single operation cannot be aborted; abort the group");
}

}  // namespace weft::torch_backend
