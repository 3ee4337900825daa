#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace weft::torch_backend {

/// Keeps Weft's threads away from Python once it exits. Letting go of a tensor, or completing a future, may take
/// Python's lock; a thread that asks for it while Python exits ends the program (`terminate called without an active
/// exception`, signal 6), and a job whose work is done counts as failed. Any thread.
class InterpreterExit {
 public:
  /// While one lives, this thread may do what takes Python's lock, if it says so.
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

  /// Python's atexit, without its lock: waits until no visit is under way, for some seconds at most, since what users
  /// chain on futures may wait for other ranks, and what is sent together for a peer's messages. From then on none is
  /// allowed.
  void begin();

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  int visits_ = 0;
  bool begun_ = false;
};

/// This process's; it outlives every thread.
[[nodiscard]] InterpreterExit& interpreter_exit();

/// What a thread that may not visit Python holds stays until the process is gone.
template <typename... Values>
void leave_to_exit(Values... values) {
  (static_cast<void>(new Values(std::move(values))), ...);
}

/// `value`, which goes with the last copy: on whatever thread that is, but not once Python exits, when it stays.
template <typename Value>
[[nodiscard]] std::shared_ptr<Value> released_before_exit(Value value) {
  return {new Value(std::move(value)), [](Value* held) {
            InterpreterExit::Visit const visit(interpreter_exit());
            if (visit) delete held;
          }};
}

}  // namespace weft::torch_backend
