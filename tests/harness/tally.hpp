#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace weft::test {

/// Counts ranks, threads or forked processes, that have come to some point, so that others can wait for them there.
class Tally {
 public:
  Tally()
      : count_(static_cast<std::atomic<int>*>(
            mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Tally() { munmap(count_, sizeof *count_); }
  Tally(Tally const&) = delete;
  Tally& operator=(Tally const&) = delete;

  void add() const { ++*count_; }
  /// Returns once `wanted` have been added; if that never happens, the test's time limit ends it.
  void await(int wanted) const {
    while (*count_ < wanted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::atomic<int>* count_;
};

}  // namespace weft::test
