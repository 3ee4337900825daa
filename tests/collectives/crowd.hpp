#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace weft::test {

/// As many busy threads as there are cores, for as long as it lives.
class Crowd {
 public:
  Crowd() {
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
      threads_.emplace_back([this] {
        while (!over_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~Crowd() {
    over_.store(true);
    for (auto& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

/// How often this thread has given up its core though it had more to do: by yielding, or because its time was over.
inline long displaced() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

}  // namespace weft::test
