#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bucketing/host_stream.hpp"
#include "weft/bucketer.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Finds out, step by step, how many ranks still have data: each rank announces it in front of the step's first bucket.
class ActiveRanks {
 public:
  explicit ActiveRanks(JoinOptions const& options) : options_(options) {}

  /// Collective, asynchronous, through host memory: see HostStream. Called once a step.
  void announce(Communicator& communicator, Stream const& stream, bool active);
  [[nodiscard]] bool announced() const noexcept { return announced_; }
  /// How many ranks announced that they are active; waits for their announcements.
  [[nodiscard]] int count() const;
  /// @throws Error{mismatch} where only some ranks are active and options forbid them to go on alone.
  void check_all_or_none(int ranks) const;
  /// The factor for results: 1, or ranks / count(), as options say.
  [[nodiscard]] float factor(ReduceOp op, int ranks) const;

  /// The step is over.
  void end_step() noexcept { announced_ = false; }
  /// Counts a step of this rank's own, not one of others that it only took part in, even with gradients.
  void count_step() noexcept { ++steps_; }
  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
  [[nodiscard]] JoinOptions const& options() const noexcept { return options_; }
  /// Waits until nothing is under way, also where something failed.
  void drain() const noexcept;

 private:
  JoinOptions options_;
  std::int32_t mine_ = 0;
  std::int32_t all_ = 0;
  bool announced_ = false;
  std::size_t steps_ = 0;
  Work work_;
  HostStream host_;
};

/// Checks that results which JoinDivisor::active_ranks divides can be divided here.
/// @throws Error{invalid_argument|unsupported}
void check_join(JoinOptions const& options, BucketerOptions const& buckets, std::vector<TensorSpec> const& specs);

}  // namespace weft
