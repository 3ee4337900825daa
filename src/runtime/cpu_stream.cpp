#include "runtime/cpu_stream.hpp"

#include <pthread.h>
#include <sched.h>

#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/deadline.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

/// Blocks asynchronous signals while it lives, so that a thread started meanwhile leaves them to the application's
/// threads.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t blocked;
    sigfillset(&blocked);
    for (int const fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(SignalsBlocked const&) = delete;
  SignalsBlocked& operator=(SignalsBlocked const&) = delete;

 private:
  sigset_t before_{};
};

void bind(std::thread& thread, StreamOptions const& options) {
  int const cpu = *options.cpu;
  int failure = EINVAL;
  if (cpu >= 0 && cpu < CPU_SETSIZE) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    failure = pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
  }
  if (failure != 0) {
    throw Error(ErrorCode::system, "Stream::cpu: cannot bind stream '" + options.name + "' to CPU " +
                                       std::to_string(cpu) + ": " + std::strerror(failure) +
                                       "; choose one this process may run on (taskset -p PID lists them)");
  }
}

}  // namespace

class CpuStream::Queue {
 public:
  void push(std::function<void()> task) {
    {
      std::scoped_lock const lock(mutex_);
      tasks_.push_back(std::move(task));
      ++pushed_;
    }
    arrived_.notify_one();
  }

  /// Waits for everything pushed so far.
  void drain() {
    std::unique_lock lock(mutex_);
    auto const target = pushed_;
    ran_one_.wait(lock, [&] { return ran_ >= target; });
  }

  void close() {
    {
      std::scoped_lock const lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_one();
  }

  /// The worker: returns once closed and empty. noexcept: a task that throws has broken its contract, and ends the
  /// program where it is found rather than later.
  void run() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
      arrived_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it captured is gone before synchronize() returns
      lock.lock();
      ++ran_;
      ran_one_.notify_all();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable ran_one_;
  std::deque<std::function<void()>> tasks_;
  std::uint64_t pushed_ = 0;
  std::uint64_t ran_ = 0;
  bool closed_ = false;
};

CpuStream::CpuStream(StreamOptions const& options) : queue_(std::make_shared<Queue>()) {
  try {
    SignalsBlocked const blocked;
    worker_ = std::thread([queue = queue_, name = options.name.substr(0, 15)] {
      pthread_setname_np(pthread_self(), name.c_str());
      use_precise_sleep();
      queue->run();
    });
  } catch (std::system_error const& failure) {
    throw Error(ErrorCode::system,
                "Stream::cpu: cannot start the worker of stream '" + options.name + "': " + failure.what());
  }
  if (!options.cpu) return;
  try {
    bind(worker_, options);
  } catch (...) {
    queue_->close();
    worker_.join();
    throw;
  }
}

CpuStream::~CpuStream() {
  launch_deferred();
  queue_->close();
  if (on_worker()) {
    worker_.detach();
  } else {
    worker_.join();
  }
}

void CpuStream::enqueue(std::function<void()> task) {
  queue_->push(std::move(task));
}

void CpuStream::synchronize() {
  queue_->drain();
}

}  // namespace weft
