#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace weft::torch_backend {

/// Keeps Weft's threads away from Python once it exits. Releasing a tensor or completing a future may take Python's
/// lock. A thread that asks for the lock while Python exits ends the program (`terminate called without an active
/// exception`, signal 6), so that a job counts as failed although its work is done. Any thread.
class InterpreterExit {
 public:
  /// While a Visit lives and is true, this thread may do what takes Python's lock.
  class Visit {
   public:
    explicit Visit(InterpreterExit& exit);
    ~Visit();
    Visit(Visit const&) = delete;
    Visit& operator=(Visit const&) = delete;

    [[nodiscard]] explicit operator bool() const noexcept { return allowed_; }

   private:
    InterpreterExit& exit_;
    bool const allowed_;
  };

  /// Called by Python's atexit, without Python's lock: waits until no visit is under way, after which none is allowed.
  /// It waits some seconds at most, because callbacks on futures may wait for other ranks, and coalesced messages for a
  /// peer.
  void begin();

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  int visits_ = 0;
  bool begun_ = false;
};

/// This process's instance; it outlives every thread.
[[nodiscard]] InterpreterExit& interpreter_exit();

/// Leaks values held by a thread that may not visit Python: they stay until the process is gone.
template <typename... Values>
void leave_to_exit(Values... values) {
  (static_cast<void>(new Values(std::move(values))), ...);
}

/// Shares `value`, which is released with the last copy, on whichever thread that is; once Python exits, it is leaked.
template <typename Value>
[[nodiscard]] std::shared_ptr<Value> released_before_exit(Value value) {
  return {new Value(std::move(value)), [](Value* held) {
            InterpreterExit::Visit const visit(interpreter_exit());
            if (visit) delete held;
          }};
}

}  // namespace weft::torch_backend
