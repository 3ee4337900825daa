#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bucketing/host_stream.hpp"
#include "weft/bucketer.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// How many ranks still have data, step by step: each says so, in front of the step's first bucket.
class ActiveRanks {
 public:
  explicit ActiveRanks(JoinOptions const& options) : options_(options) {}

  /// Collective, asynchronous, through host memory: see HostStream. Once a step.
  void announce(Communicator& communicator, Stream const& stream, bool active);
  [[nodiscard]] bool announced() const noexcept { return announced_; }
  /// How many ranks said that they are active; waits for them.
  [[nodiscard]] int count() const;
  /// @throws Error{mismatch} where options forbid some ranks to go on alone.
  void check_all_or_none(int ranks) const;
  /// What results are multiplied by: 1, or ranks / count() as options say.
  [[nodiscard]] float factor(ReduceOp op, int ranks) const;

  /// The step is over.
  void end_step() noexcept { announced_ = false; }
  [[nodiscard]] std::size_t active_steps() const noexcept { return active_steps_; }
  [[nodiscard]] JoinOptions const& options() const noexcept { return options_; }
  /// Waits until nothing is under way, whatever failed.
  void drain() const noexcept;

 private:
  JoinOptions options_;
  std::int32_t mine_ = 0;
  std::int32_t all_ = 0;
  bool announced_ = false;
  std::size_t active_steps_ = 0;
  Work work_;
  HostStream host_;
};

/// What active_ranks divides by has to be computed. @throws Error{invalid_argument|unsupported}
void check_join(JoinOptions const& options, BucketerOptions const& buckets, std::vector<TensorSpec> const& specs);

}  // namespace weft
