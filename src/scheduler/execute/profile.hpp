#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weft/plan_executor.hpp"

namespace weft {

/// Measures how long operators other than collectives take on this rank, over a few steps.
class StepProfile {
 public:
  StepProfile(OpGraph const& graph, int steps);

  /// False once there are as many steps as were asked for.
  [[nodiscard]] bool wants_more() const noexcept { return taken_ < steps_; }
  void add(std::span<OpTiming const> timings) noexcept;
  /// The median seconds by OpId over the steps that were added; 0 for collectives.
  [[nodiscard]] std::vector<double> medians() const;

 private:
  OpGraph const& graph_;
  std::size_t steps_;
  std::size_t taken_ = 0;
  std::vector<double> seconds_;  ///< [op][step]
};

/// Collective over `world` and `groups`: measures what each link that `graph` uses costs, by all_reduces of two sizes
/// in the first group that uses it, on that link's stream. Returns the cluster with those speeds in place of
/// `assumed`'s, the same on all ranks. A link that no group uses, or that costs nothing, keeps what was assumed.
[[nodiscard]] Cluster measure_links(Communicator& world, std::span<Communicator* const> groups, OpGraph const& graph,
                                    Cluster const& assumed, std::span<Stream const> streams);

}  // namespace weft
