#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace weft::torch_backend {

/// torch's barrier that names the ranks that did not come. It goes through the store, so that a missing rank breaks
/// nothing else. Rank 0 decides each barrier; for a rank that gave up waiting for the decision, the barrier has failed
/// even if rank 0 comes later. After a failure the ranks agree again on which barrier is the next.
class MonitoredBarrier {
 public:
  MonitoredBarrier(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}

  /// Rank 0's error names the first rank that did not come, or, with `wait_all_ranks`, all of them. One thread at a
  /// time.
  void enter(std::chrono::milliseconds limit, bool wait_all_ranks);

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::string key(std::string const& what) const;
  [[nodiscard]] std::string key(int rank) const { return key(std::to_string(rank)); }
  [[nodiscard]] bool comes(std::string const& key, Clock::time_point deadline);
  void await_everybody(std::chrono::milliseconds limit, bool wait_all_ranks);
  void await_verdict(std::chrono::milliseconds limit);
  /// Returns whether rank 0 found all ranks present, and goes on to the next barrier.
  bool take_verdict();

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  std::mutex mutex_;
  std::uint64_t round_ = 0;  // how many barriers rank 0 has decided, as far as this rank knows
  bool gave_up_ = false;     // this rank has given up the current barrier
};

}  // namespace weft::torch_backend
