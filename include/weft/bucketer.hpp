#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "weft/bucket_plan.hpp"
#include "weft/communicator.hpp"

namespace weft {

struct BucketerOptions {
  BucketLimits limits{};
  ReduceOp op = ReduceOp::avg;
  bool overlap = true;           ///< false: every bucket is launched by finish(), nothing overlaps
  bool rebuild = true;           ///< after the first step, re-plan in rank 0's observed ready order
  std::optional<Stream> stream;  ///< absent: the Bucketer owns one communication stream
};

/// What happened to one bucket in the last finished step.
struct BucketTiming {
  std::size_t bytes = 0;
  std::chrono::steady_clock::time_point ready;     ///< last gradient of the bucket was marked ready
  std::chrono::steady_clock::time_point started;   ///< its collective began
  std::chrono::steady_clock::time_point finished;  ///< its collective ended
};

/// Groups gradients into buckets of symmetric memory and all_reduces each bucket as soon as it and all earlier buckets are
/// full. Gradients are views into the buckets: write a gradient there, mark_ready() it, go on computing, finish().
///
/// A step: mark_ready(i) for each tensor in any order, then finish(). Buckets launch in plan order on every rank, so ranks may become
/// ready in different orders. Not thread-safe: one thread marks and finishes.
class Bucketer {
 public:
  /// Collective. Plans in reverse spec order (backward visits the last layer first) and allocates the buckets.
  Bucketer(Communicator& communicator, std::vector<TensorSpec> specs, BucketerOptions const& options = {});
  ~Bucketer();
  Bucketer(Bucketer&&) noexcept;
  Bucketer& operator=(Bucketer&&) noexcept;

  /// Where tensor `index` has its gradient. Valid until the next finish() that rebuilds: see generation().
  [[nodiscard]] BufferView gradient(std::size_t index) const;
  /// Grows when finish() has moved the gradients (once, after the first step); contents move along.
  [[nodiscard]] std::size_t generation() const noexcept;

  /// Tensor `index` has its gradient of this step; do not touch it until finish().
  /// @throws Error{invalid_argument} for a bad index or one already marked.
  void mark_ready(std::size_t index);

  /// Accumulation: while false, mark_ready() only records and finish() sends nothing, so gradients add up locally.
  void set_sync(bool sync);

  /// Ends the step: tensors that got no gradient count as zero (they are zeroed and sent); waits for every bucket; rethrows what
  /// failed. All ranks call it. After the first synchronised step it re-plans when options.rebuild.
  void finish();

  /// Waits for the bucket that holds tensor `index` only (every bucket must have been launched: see finish_launching()).
  void wait(std::size_t index);
  /// The first half of finish(): launches what is left without waiting.
  void finish_launching();

  [[nodiscard]] BucketPlan const& plan() const noexcept;
  /// The last finished step's buckets in launch order.
  [[nodiscard]] std::span<BucketTiming const> timings() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
