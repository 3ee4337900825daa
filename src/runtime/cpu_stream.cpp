#include "runtime/cpu_stream.hpp"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
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

/// The tasks, which one thread at a time runs: the worker or a thread that helps. Notifying costs nothing while the
/// worker lingers, because it then does not wait on the condition.
class CpuStream::Queue {
 public:
  explicit Queue(std::chrono::nanoseconds linger) : linger_(linger) {}

  void push(std::function<void()> task) {
    {
      std::scoped_lock const lock(mutex_);
      tasks_.push_back(std::move(task));
      ++pushed_;
    }
    changed_.notify_one();
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
    changed_.notify_one();
  }

  /// Whether the calling thread is running a task.
  [[nodiscard]] bool runs_here() const noexcept { return runner_.load() == std::this_thread::get_id(); }

  void help_until(std::function<bool()> const& enough) noexcept {
    if (linger_.count() == 0) return;
    {
      std::unique_lock lock(mutex_);
      ++helps_;
      ++helpers_;
      ran_one_.wait(lock, [&] { return !is_running(); });  // then the worker leaves the next task to us
      while (!tasks_.empty() && !enough()) run_one(lock);
      --helpers_;
    }
    changed_.notify_one();
  }

  /// The worker's loop: returns once the queue is closed and empty.
  void run() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
      auto const helps = helps_;
      changed_.wait(lock, [&] { return helpers_ == 0 && (closed_ || !tasks_.empty()); });
      if (closed_ && tasks_.empty()) return;
      if (helps_ != helps) linger(lock);
      while (!tasks_.empty() && helpers_ == 0) {
        run_one(lock);
        if (tasks_.empty()) linger(lock);
      }
    }
  }

 private:
  [[nodiscard]] bool is_running() const noexcept { return runner_.load() != std::thread::id{}; }

  /// noexcept, because a task that throws has broken its contract: the program ends where that is found, not later.
  void run_one(std::unique_lock<std::mutex>& lock) noexcept {
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    runner_ = std::this_thread::get_id();
    lock.unlock();
    task();
    task = nullptr;  // so that what it captured is gone before synchronize() returns
    lock.lock();
    runner_ = std::thread::id{};
    ++ran_;
    ran_one_.notify_all();
  }

  /// Sleeps until nobody has helped for a while: a program that keeps waiting runs its tasks itself.
  void linger(std::unique_lock<std::mutex>& lock) noexcept {
    if (linger_.count() == 0) return;
    std::uint64_t seen = 0;
    do {
      seen = helps_;
      lock.unlock();
      sleep_until(std::chrono::steady_clock::now() + linger_);
      lock.lock();
    } while (helps_ != seen && helpers_ == 0 && !closed_);
  }

  std::chrono::nanoseconds const linger_;
  std::mutex mutex_;
  std::condition_variable changed_;  ///< notified when a task has come, a helper has left, or the queue is closed
  std::condition_variable ran_one_;
  std::deque<std::function<void()>> tasks_;
  std::atomic<std::thread::id> runner_{};  ///< runs a task now; std::thread::id{}: none does. Changes under the mutex
  std::uint64_t pushed_ = 0;
  std::uint64_t ran_ = 0;
  std::uint64_t helps_ = 0;
  int helpers_ = 0;  ///< helping, or waiting for a task to end
  bool closed_ = false;
};

CpuStream::CpuStream(StreamOptions const& options) : queue_(std::make_shared<Queue>(options.linger)) {
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
  if (process_ != process_number()) {  // in a forked child, which has no such thread: leave both behind
    new auto(std::move(worker_));
    new auto(std::move(queue_));
    return;
  }
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

void CpuStream::help_until(std::function<bool()> const& enough) {
  auto const queue = queue_;  // a task may drop the last copy of the stream
  queue->help_until(enough);
}

bool CpuStream::on_worker() const noexcept {
  return queue_->runs_here();
}

}  // namespace weft
