#pragma once

#include <functional>
#include <memory>

#include "collectives/backend.hpp"
#include "transport/sim/simulation.hpp"
#include "weft/communicator.hpp"
#include "weft/overlap.hpp"
#include "weft/wire_format.hpp"

namespace weft::sim {

/// A rank of simulate_ranks(), inside its body.
class SimulatedRank {
 public:
  SimulatedRank(Communicator& world, Transport& transport) noexcept : world_(world), transport_(transport) {}

  /// All ranks. Its Works, streams, groups and whatever is built on them (Bucketer, DataParallel, PlanExecutor) run
  /// unchanged. Not there: Messenger, GPUs, shrink(). Communicators made from it are simulated, too.
  [[nodiscard]] Communicator& world() const noexcept { return world_; }
  /// Lets the virtual time of a computation pass, a straggler's share of times as long; says when that was.
  Interval compute(Time duration) const;
  [[nodiscard]] TimePoint now() const;

 private:
  Communicator& world_;
  Transport& transport_;
};

struct RankOptions {
  /// Between ranks of one host by one back end, between hosts by another, as real jobs do where hosts have several
  /// ranks (collectives/hierarchical); false: one for all, as where each rank has a host to itself.
  bool hierarchical = false;
  /// Without a config: Config's defaults, and no flight recorder.
  CommunicatorOptions communicator{};
};

/// simulate(), with a communicator of all ranks for each. Where options.carries_data is false, calls of up to 64 KiB
/// (what ranks agree on, say) carry their bytes all the same; larger ones leave nonsense, and what
/// Communicator::allocate() gives for them is one memory for all ranks.
/// @throws Error{invalid_argument} for options that cannot be
[[nodiscard]] Outcome simulate_ranks(Topology const& topology, Options const& options, RankOptions const& how,
                                     std::function<void(SimulatedRank&)> const& body);

/// simulate(), with collectives/hierarchical over all ranks: the algorithms of collectives/p2p inside hosts and between
/// them. Calls are known to agree, so nothing is announced; where options.carries_data is false their buffers are
/// Transport::phantom(). Pre: several hosts of several ranks, or a `wire` other than f32.
[[nodiscard]] Outcome simulate_by_hosts(Topology const& topology, Options const& options, WireFormat wire,
                                        std::function<void(Backend&, Transport&)> const& body);

}  // namespace weft::sim
