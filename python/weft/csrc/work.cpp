#include "work.hpp"

#include <algorithm>
#include <atomic>

#include <c10/util/Exception.h>

#include "interpreter_exit.hpp"
#include "overlap_recorder.hpp"

namespace weft::torch_backend {
namespace {

/// As in torch's other back ends, the future's value is the list of the call's tensors, whatever their number.
void complete(c10::ivalue::Future& future, std::vector<at::Tensor> const& results, std::exception_ptr const& error) {
  if (error) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(results));
  }
}

}  // namespace

ProcessGroupWork::ProcessGroupWork(int rank, Operation const& what, std::uint64_t sequence, at::TensorList results,
                                   at::TensorList inputs, bool profiled)
    : Work(rank, what.type, profiled ? what.title : nullptr,
           profiled ? std::optional<std::vector<at::Tensor>>(inputs.vec()) : std::nullopt),
      sequence_(sequence),
      name_(what.name),
      results_(results.vec()) {}

void ProcessGroupWork::finish_inline() {
  completed_ = true;
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
}

void ProcessGroupWork::finish_elsewhere(std::exception_ptr error, Aftermath& aftermath) {
  finish(error);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  // Released without mutex_: releasing a tensor that Python knew takes Python's lock, and the thread that has that lock
  // may ask for mutex_, as is_completed() does.
  std::vector<at::Tensor> kept;
  {
    std::lock_guard<std::mutex> const lock(mutex_);
    future = std::move(unfinished_);
    kept.swap(kept_);
  }
  kept.clear();
  if (future) aftermath.run([future, results = results_, error] { complete(*future, results, error); });
}

bool ProcessGroupWork::wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout && !isCompleted()) {
    if (auto const stream = stream_.lock()) stream->help_until([this] { return isCompleted(); });
  }
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
  if (!done) unfinished_ = future;
  lock.unlock();
  if (done) complete(*future, results_, error);
  return future;
}

void ProcessGroupWork::abort() {
  TORCH_CHECK(false, "weft: rank ", rank_, ": ", name_, ": a single operation cannot be aborted; abort the group");
}

MessageWork::MessageWork(int rank, Operation const& what, std::vector<at::Tensor> tensors,
                         std::vector<Messenger::Request> requests, std::shared_ptr<Aftermath> aftermath, bool profiled)
    : Work(rank, what.type, profiled ? what.title : nullptr,
           profiled ? std::optional<std::vector<at::Tensor>>(tensors) : std::nullopt),
      name_(what.name),
      tensors_(std::move(tensors)),
      requests_(std::move(requests)),
      aftermath_(std::move(aftermath)) {}

bool MessageWork::isCompleted() {
  return std::all_of(requests_.begin(), requests_.end(), [](auto const& request) { return request.test(); });
}

std::exception_ptr MessageWork::failure() const {
  for (auto const& request : requests_) {
    if (auto const error = request.error()) return aftermath_->translated(error);
  }
  return nullptr;
}

bool MessageWork::isSuccess() const {
  return failure() == nullptr;
}

std::exception_ptr MessageWork::exception() const {
  return failure();
}

int MessageWork::sourceRank() const {
  return requests_.empty() ? -1 : requests_.front().source();
}

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  OverlapRecorder::Wait const waiting(overlap_recorder());
  auto const forever = timeout == kNoTimeout;
  auto const deadline = std::chrono::steady_clock::now() + timeout;
  for (auto const& request : requests_) {
    try {
      if (forever) {
        request.wait();
      } else if (!request.wait_for(std::max<std::chrono::nanoseconds>(deadline - std::chrono::steady_clock::now(),
                                                                      std::chrono::nanoseconds(0)))) {
        auto const message = c10::str("weft: rank ", rank_, ": ", name_, ": not complete after waiting for ",
                                      timeout.count(), " ms; the operation goes on");
        C10_THROW_ERROR(DistBackendError, message);
      }
    } catch (Error const& error) {
      aftermath_->rethrow(error);
    }
  }
  std::lock_guard<std::mutex> const lock(mutex_);
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> MessageWork::getFuture() {
  std::lock_guard<std::mutex> const lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  auto const left = std::make_shared<std::atomic<std::size_t>>(requests_.size());
  auto const finish =
      released_before_exit([future = future_, tensors = tensors_, requests = requests_, aftermath = aftermath_] {
        std::exception_ptr error;
        for (auto const& request : requests) {
          if (!error) error = aftermath->translated(request.error());
        }
        complete(*future, tensors, error);
      });
  if (requests_.empty() || isCompleted()) {
    (*finish)();
    return future_;
  }
  for (auto const& request : requests_) {
    request.then([left, finish, aftermath = aftermath_] {
      if (left->fetch_sub(1) == 1) aftermath->run([finish] { (*finish)(); });
    });
  }
  return future_;
}

}  // namespace weft::torch_backend
