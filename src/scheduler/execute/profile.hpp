#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weft/plan_executor.hpp"

namespace weft {

/// What operators that are not collectives took in a few steps of this rank.
class StepProfile {
 public:
  StepProfile(OpGraph const& graph, int steps);

  /// False once there are as many as were asked for.
  [[nodiscard]] bool wants_more() const noexcept { return taken_ < steps_; }
  void add(std::span<OpTiming const> timings) noexcept;
  /// Seconds by OpId, of the steps that were added; 0 of collectives.
  [[nodiscard]] std::vector<double> medians() const;

 private:
  OpGraph const& graph_;
  std::size_t steps_;
  std::size_t taken_ = 0;
  std::vector<double> seconds_;  ///< [op][step]
};

/// Collective over `world` and `groups`: measures what each link that `graph` uses costs, by all_reduces of two sizes
/// in the first group that uses it, on that link's stream, and returns the cluster with those speeds in place of
/// `assumed`'s; the same on all ranks. A link that none uses, or that costs nothing, keeps what was assumed.
[[nodiscard]] Cluster measure_links(Communicator& world, std::span<Communicator* const> groups, OpGraph const& graph,
                                    Cluster const& assumed, std::span<Stream const> streams);

}  // namespace weft
