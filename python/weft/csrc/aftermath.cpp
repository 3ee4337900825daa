#include "aftermath.hpp"

#include <string>

#include <c10/util/Exception.h>

#include "interpreter_exit.hpp"

namespace weft::torch_backend {
namespace {

c10d::ErrorType error_type(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::timeout: return c10d::ErrorType::TIMEOUT;
    case ErrorCode::peer_lost:
    case ErrorCode::aborted: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

}  // namespace

[[noreturn]] void throw_as_torch(Error const& error) {
  auto const message = std::string("weft: ") + error.what();
  switch (error.code()) {
    case ErrorCode::invalid_argument: C10_THROW_ERROR(ValueError, message);
    case ErrorCode::unsupported: C10_THROW_ERROR(NotImplementedError, message);
    // torch's users, and its tests, look for these two words.
    case ErrorCode::timeout:
      C10_THROW_ERROR(DistBackendError,
                      std::string("weft: Timed out waiting: ") + error.what() +
                          "; a timeout given to init_process_group or new_group goes before WEFT_TIMEOUT");
    case ErrorCode::out_of_memory: C10_THROW_ERROR(OutOfMemoryError, message);
    default: C10_THROW_ERROR(DistBackendError, message);
  }
}

void Aftermath::rethrow(Error const& error) {
  if (error.code() != ErrorCode::invalid_argument && error.code() != ErrorCode::unsupported) {
    auto none = c10d::ErrorType::SUCCESS;
    error_.compare_exchange_strong(none, error_type(error.code()));
  }
  auto const description = this->description();
  if (description.empty()) throw_as_torch(error);
  throw_as_torch(Error(error.code(), c10::str(error.what(), " (group_desc ", description, ")")));
}

void Aftermath::set_description(std::string const& description) {
  std::lock_guard const lock(mutex_);
  description_ = description;
}

std::string Aftermath::description() {
  std::lock_guard const lock(mutex_);
  return description_;
}

std::exception_ptr Aftermath::translated(std::exception_ptr const& error) {
  if (!error) return nullptr;
  try {
    std::rethrow_exception(error);
  } catch (Error const& failure) {
    try {
      rethrow(failure);
    } catch (...) {
      return std::current_exception();
    }
  } catch (...) {
    return error;
  }
}

void Aftermath::run(std::function<void()> task) {
  auto& thread = take();
  thread.stream.enqueue([self = shared_from_this(), &thread, task = std::move(task)]() mutable {
    InterpreterExit::Visit const visit(interpreter_exit());
    if (!visit) return leave_to_exit(std::move(task));
    self->set_runner(thread, std::this_thread::get_id());
    task();
    task = nullptr;
    self->set_runner(thread, {});
  });
}

void Aftermath::finish() {
  std::list<Thread> others;
  {
    std::lock_guard const lock(mutex_);
    for (auto each = threads_.begin(); each != threads_.end();) {
      auto const thread = each++;
      if (thread->runner != std::this_thread::get_id()) others.splice(others.end(), threads_, thread);
    }
  }
  for (auto& thread : others) thread.stream.synchronize();
}

void Aftermath::set_runner(Thread& thread, std::thread::id runner) {
  std::lock_guard const lock(mutex_);
  thread.runner = runner;
  thread.busy = runner != std::thread::id();
}

Aftermath::Thread& Aftermath::take() {
  std::lock_guard const lock(mutex_);
  for (auto& thread : threads_) {
    if (thread.busy) continue;
    thread.busy = true;
    return thread;
  }
  return threads_.emplace_back(Thread{Stream::cpu({.name = "weft-future"})});
}

}  // namespace weft::torch_backend
