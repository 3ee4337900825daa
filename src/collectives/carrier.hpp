#pragma once

#include <cstdint>
#include <string>

#include "core/rank_hosts.hpp"
#include "weft/bootstrap.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// What carries bytes between hosts.
enum class Carrier : std::uint8_t { mpi, ucx };

/// The carrier that was chosen, and why.
struct CarrierChoice {
  Carrier carrier = Carrier::mpi;
  std::string why;
  bool is_regretted = false;  ///< every rank has UCX, but it fails: the user may want to find out why
};

/// Chooses what carries bytes between the several hosts `hosts`, for ranks that MPI has started and where no setting
/// says it: UCX, unless a rank does not have it, it does not connect all ranks, or its messages measurably take clearly
/// longer than MPI's (as on a network that only MPI knows).
///
/// Collective, and equal on all ranks. The process remembers the choice for each number of ranks and of hosts. `tag`:
/// see mpi_bootstrap_of(). Nothing is measured where rank 0 has no Config::tuning_cache, or has a Config::host_id:
/// between hosts in name only, measurements would say nothing.
[[nodiscard]] CarrierChoice choose_carrier(Bootstrap& bootstrap, CommunicatorOptions const& options,
                                           RankHosts const& hosts, int tag);

}  // namespace weft
