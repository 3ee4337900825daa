#pragma once

#include <chrono>
#include <string>

#include "collectives/shm/cost_model.hpp"
#include "collectives/shm/shm_backend.hpp"
#include "core/topology.hpp"

namespace weft::shm {

/// What the costs of algorithms depend on: "2 ranks on cpus 0-1, …". `distance`: see measure_distance().
[[nodiscard]] std::string describe_machine(Topology const& topology, Tuning const& tuning, int ranks,
                                           std::vector<int> const& cpus, std::size_t distance);

/// Whether measuring says anything: ranks that take turns on a core measure the scheduler.
[[nodiscard]] inline bool is_measurable(Tuning const& tuning, int ranks) noexcept {
  return ranks > 1 && !tuning.share_work;
}

/// Measures what the algorithms cost that `derived` chooses among, on a backend made for that. Collective. Calls are
/// made as programs make them: each rank re-writes its data before, and reads the result after. Rank 0's figures count,
/// the other ranks' are of no use.
///
/// Takes kMeasuringTime at most, and the time of the last experiment. Of what is small or lies in symmetric memory, a
/// collective for which there is no time in 50 ms of it, as on a machine that is busy with other things, stays
/// unknown; large calls and private memory follow as far as there is time.
[[nodiscard]] CostModel measure(ShmBackend& scratch, Selector const& derived, Tuning const& tuning,
                                std::chrono::milliseconds timeout);
inline constexpr std::chrono::milliseconds kMeasuringTime{72};

}  // namespace weft::shm
