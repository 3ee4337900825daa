#pragma once

#include <functional>
#include <list>
#include <mutex>

#include "weft/stream.hpp"

namespace weft::torch_backend {

/// Threads for what users chain on futures. It may wait for further operations of the same group, so it must hold up
/// neither the group's stream nor one another: each piece gets a thread that nothing else runs on at the time.
class Notifiers {
 public:
  void run(std::function<void()> task) {
    auto& thread = take();
    thread.stream.enqueue([this, &thread, task = std::move(task)] {
      task();
      std::lock_guard const lock(mutex_);
      thread.busy = false;
    });
  }

  /// Waits for what runs, and ends the threads. Not from one of them.
  void finish() {
    std::list<Thread> all;
    {
      std::lock_guard const lock(mutex_);
      all.swap(threads_);
    }
    for (auto& thread : all) thread.stream.synchronize();
  }

 private:
  struct Thread {
    Stream stream;
    bool busy = true;
  };

  Thread& take() {
    std::lock_guard const lock(mutex_);
    for (auto& thread : threads_) {
      if (thread.busy) continue;
      thread.busy = true;
      return thread;
    }
    return threads_.emplace_back(Thread{Stream::cpu({.name = "weft-future"})});
  }

  std::mutex mutex_;
  std::list<Thread> threads_;
};

}  // namespace weft::torch_backend
