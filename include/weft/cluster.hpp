#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace weft {

/// A link as the alpha-beta model sees it: n bytes take steps * step_s + n / bytes_per_s.
struct LinkSpeed {
  double bytes_per_s = 0;
  double step_s = 0;  ///< seconds that each step of an algorithm costs however little it sends
};

/// Machines that a step is planned for: equal hosts, equal devices, ranks in the order of hosts.
struct Cluster {
  std::string name{};
  int ranks_per_host = 1;
  double flops_per_s = 0;         ///< of one rank, dense, in the type that the model computes in
  double memory_bytes_per_s = 0;  ///< of one rank
  std::int64_t memory_bytes = 0;  ///< of one rank; 0: not known
  LinkSpeed within{};             ///< between ranks of one host: what each rank sends
  LinkSpeed between{};            ///< between hosts: what a host sends, by all its ranks together
  double copy_bytes_per_s = 0;    ///< between a rank's memories (device and host); 0: as memory_bytes_per_s
  double operator_s = 0;          ///< seconds that starting an operator takes
};

/// By name: a100-100g, a100-200g, a100-400g, a100-800g, h100-400g, h200-400g (8 GPUs a host; the number is the host's
/// gigabits per second; docs/scheduler.md has the figures and their sources).
/// @throws Error{invalid_argument} naming those that there are.
[[nodiscard]] Cluster cluster_named(std::string const& name);
[[nodiscard]] std::vector<std::string> cluster_names();

/// From JSON whose keys are the members' names, each link an object of its own.
/// @throws Error{invalid_argument} naming `source` and the key: unknown, missing, negative, not finite.
[[nodiscard]] Cluster read_cluster(std::istream& in, std::string const& source);
void write_cluster(Cluster const& cluster, std::ostream& out);

/// @throws Error{invalid_argument} naming the member that is not positive (or, where 0 has a meaning, negative).
void check_cluster(Cluster const& cluster);

}  // namespace weft
