#pragma once

#include <cstdint>
#include <string>

#include "core/rank_hosts.hpp"
#include "weft/bootstrap.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// What carries bytes between hosts.
enum class Carrier : std::uint8_t { mpi, ucx };

/// ... and why, in words.
struct CarrierChoice {
  Carrier carrier = Carrier::mpi;
  std::string why;
  bool is_regretted = false;  ///< UCX is there, and fails: the user may want to see to it
};

/// For ranks that MPI has started, on the several hosts `hosts`, where nobody says: UCX, unless a rank cannot have it,
/// it does not connect them all, or its messages take clearly longer than MPI's, measured (as where the network is one
/// that only MPI knows). Collective, and equal on all ranks; once for so many ranks on so many hosts, then remembered
/// by the process. `tag`: see mpi_bootstrap_of(). Measures nothing where rank 0 has no Config::tuning_cache, or a
/// Config::host_id: between hosts in name only what is measured says nothing.
[[nodiscard]] CarrierChoice choose_carrier(Bootstrap& bootstrap, CommunicatorOptions const& options,
                                           RankHosts const& hosts, int tag);

}  // namespace weft
