#include "interpreter_exit.hpp"

#include <pthread.h>

#include <chrono>
#include <new>

namespace weft::torch_backend {

InterpreterExit::Visit::Visit(InterpreterExit& exit)
    : exit_(exit), allowed_([&exit] {
        std::lock_guard const lock(exit.mutex_);
        if (!exit.begun_) ++exit.visits_;
        return !exit.begun_;
      }()) {}

InterpreterExit::Visit::~Visit() {
  if (!allowed_) return;
  std::lock_guard const lock(exit_.mutex_);
  if (--exit_.visits_ == 0) exit_.left_.notify_all();
}

void InterpreterExit::begin() {
  constexpr std::chrono::seconds kPatience{5};
  std::unique_lock lock(mutex_);
  left_.wait_for(lock, kPatience, [this] { return visits_ == 0; });
  begun_ = true;
}

InterpreterExit& interpreter_exit() {
  static auto* const exit = [] {
    // A forked child has none of the threads whose visits are counted.
    ::pthread_atfork(nullptr, nullptr, [] { new (&interpreter_exit()) InterpreterExit; });
    return new InterpreterExit;
  }();
  return *exit;
}

}  // namespace weft::torch_backend
