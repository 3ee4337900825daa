#pragma once

#include <functional>
#include <memory>

#include "collectives/backend.hpp"
#include "transport/sim/simulation.hpp"
#include "weft/communicator.hpp"
#include "weft/overlap.hpp"
#include "weft/wire_format.hpp"

namespace weft::sim {

/// What the body of simulate_ranks() gets: one simulated rank.
class SimulatedRank {
 public:
  SimulatedRank(Communicator& world, Transport& transport) noexcept : world_(world), transport_(transport) {}

  /// The communicator of all ranks. Its Works, streams and groups, and what is built on them (Bucketer, DataParallel,
  /// PlanExecutor), run unchanged. It has no Messenger, no GPUs and no shrink(). Communicators made from it are
  /// simulated, too.
  [[nodiscard]] Communicator& world() const noexcept { return world_; }
  /// Lets the virtual time of a computation pass, multiplied by its factor where the rank is a straggler. Returns when
  /// that was.
  Interval compute(Time duration) const;
  [[nodiscard]] TimePoint now() const;

 private:
  Communicator& world_;
  Transport& transport_;
};

struct RankOptions {
  /// true: ranks of one host use one back end and hosts another, as real jobs do where hosts have several ranks
  /// (collectives/hierarchical). false: one back end for all, as where each rank has a host to itself.
  bool hierarchical = false;
  /// Without a config: Config's defaults, and no flight recorder.
  CommunicatorOptions communicator{};
};

/// Like simulate(), with a communicator of all ranks for each rank. Where options.carries_data is false, calls of up to
/// 64 KiB (those with which ranks agree on something, say) carry their bytes all the same; larger ones leave nonsense,
/// and what Communicator::allocate() gives for them is one memory for all ranks.
/// @throws Error{invalid_argument} for options that cannot be
[[nodiscard]] Outcome simulate_ranks(Topology const& topology, Options const& options, RankOptions const& how,
                                     std::function<void(SimulatedRank&)> const& body);

/// Like simulate(), with collectives/hierarchical over all ranks: it uses the algorithms of collectives/p2p inside
/// hosts and between them. Calls are known to agree, so nothing is announced; where options.carries_data is false their
/// buffers are Transport::phantom(). Pre: several hosts of several ranks, or a `wire` other than f32.
[[nodiscard]] Outcome simulate_by_hosts(Topology const& topology, Options const& options, WireFormat wire,
                                        std::function<void(Backend&, Transport&)> const& body);

}  // namespace weft::sim
