#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace weft {

/// What hwloc says about the part of this host that this process may use.
struct Topology {
  std::vector<int> cpus;         ///< logical CPUs this process may run on (its affinity when the process started)
  std::size_t l2_bytes = 0;      ///< per core; 1 MiB when unknown
  std::size_t l3_bytes = 0;      ///< shared; 8 MiB when unknown
  bool has_owned_lines = false;  ///< known: a line that one core wrote and others read stays in the writer's cache
  int cores = 1;                 ///< physical cores among `cpus`
};

/// Reads the topology once per call (milliseconds); keep the result.
[[nodiscard]] Topology discover_topology();

/// For each of `cpus`: the number of the L3 cache above it, or of its socket where caches are unknown; 0 where
/// both are unknown.
[[nodiscard]] std::vector<int> l3_caches_of(std::vector<int> const& cpus);

/// The processor's name as the kernel calls it: "Intel(R) Xeon(R) …".
[[nodiscard]] std::string processor_name();
/// Numbers in rising order as text: "0-3,8".
[[nodiscard]] std::string format_ranges(std::vector<int> const& cpus);

/// Binds the calling thread. @throws Error{system}
void bind_this_thread(std::vector<int> const& cpus);

/// The CPUs local rank `rank` of `ranks` should use: an equal, contiguous share; with more ranks than CPUs, CPU (rank
/// mod CPUs).
[[nodiscard]] std::vector<int> share_of_cpus(std::vector<int> const& cpus, int rank, int ranks);

}  // namespace weft
