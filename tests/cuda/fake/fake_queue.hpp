#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "cuda/fake/fake_capture.hpp"
#include "cuda/fake/fake_gpu.hpp"

namespace weft::test {

/// A stream's queue, and the thread that runs it.
class FakeGpu::Queue {
 public:
  explicit Queue(std::atomic<bool> const& ending) : ending_(ending), worker_([this] { run(); }) {}
  ~Queue() { end(); }
  Queue(Queue const&) = delete;
  Queue& operator=(Queue const&) = delete;

  void push(std::function<void()> task) {
    if (auto const capture = this->capture()) {
      capture->add(this, std::move(task));
      return;
    }
    {
      std::scoped_lock const lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

  /// The thread that made it, which stands for a process.
  [[nodiscard]] std::thread::id maker() const noexcept { return maker_; }

  void hold(bool held) {
    {
      std::scoped_lock const lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }

  /// Nothing that is on it, or comes, runs any more.
  void break_down() { broken_ = true; }
  [[nodiscard]] std::atomic<bool> const& broken() const noexcept { return broken_; }
  /// Waits until nothing runs.
  void drain() {
    std::unique_lock lock(mutex_);
    while (running_ && !ending_) changed_.wait_for(lock, std::chrono::milliseconds(20));
  }

  [[nodiscard]] std::shared_ptr<FakeCapture> capture() const {
    std::scoped_lock const lock(mutex_);
    return capture_;
  }
  void join(std::shared_ptr<FakeCapture> capture) {
    std::scoped_lock const lock(mutex_);
    capture_ = std::move(capture);
  }

  /// Runs what is there (not what is held), then ends.
  void end() {
    {
      std::scoped_lock const lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    if (worker_.joinable()) worker_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closed_ || (!held_ && !tasks_.empty()); });
      if (tasks_.empty() || held_ || ending_) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      running_ = true;
      lock.unlock();
      if (!broken_) task();
      task = nullptr;
      lock.lock();
      running_ = false;
      if (broken_) changed_.notify_all();
    }
  }

  std::atomic<bool> const& ending_;
  std::thread::id const maker_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::shared_ptr<FakeCapture> capture_;
  std::atomic<bool> broken_{false};
  bool running_ = false;
  bool held_ = false;
  bool closed_ = false;
  std::thread worker_;  // last: it uses all of the above
};

/// What was recorded last in an event.
struct FakeGpu::Event {
  std::mutex mutex;
  std::shared_ptr<Signal> point;         // null: never recorded, or captured
  std::shared_ptr<Queue> on;             // then: where
  std::shared_ptr<FakeCapture> capture;  // of a captured one
  FakeCapture::Seen seen;                // then: what comes before it
};

}  // namespace weft::test
