#pragma once

#include <chrono>
#include <string>

#include "collectives/shm/cost_model.hpp"
#include "collectives/shm/shm_backend.hpp"
#include "core/topology.hpp"

namespace weft::shm {

/// The key of costs in the TuningCache: what the costs of algorithms depend on, "2 ranks on cpus 0-1, …". `distance`:
/// see measure_distance().
[[nodiscard]] std::string describe_machine(Topology const& topology, Tuning const& tuning, int ranks,
                                           std::vector<int> const& cpus, std::size_t distance);

/// Whether measuring says anything: ranks that take turns on a core measure the scheduler.
[[nodiscard]] inline bool is_measurable(Tuning const& tuning, int ranks) noexcept {
  return ranks > 1 && !tuning.share_work;
}

/// Collective: measures the costs of the algorithms that `derived` chooses among, on `scratch`, a backend made for
/// that. Calls are made as programs make them: each rank re-writes its data before, and reads the result after. Rank
/// 0's figures count, the other ranks' are of no use.
///
/// Takes kMeasuringTime at most, and the time of the last experiment. The first 50 ms are for small calls and symmetric
/// memory. A collective for which there is no time in them, as on a machine that is busy with other things, stays
/// unknown. Large calls and private memory follow as far as there is time.
[[nodiscard]] CostModel measure(ShmBackend& scratch, Selector const& derived, Tuning const& tuning,
                                std::chrono::milliseconds timeout);
inline constexpr std::chrono::milliseconds kMeasuringTime{72};

}  // namespace weft::shm
