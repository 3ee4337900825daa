#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/cluster.hpp"
#include "weft/op_graph.hpp"

namespace weft {

/// What an operator occupies while it runs; each does one thing at a time, all of them at the same time.
enum class Resource : std::uint8_t {
  compute,
  between_hosts,  ///< collectives whose sets of ranks span hosts
  within_host,    ///< all other collectives
  copy,           ///< OpKind::copy
};
inline constexpr int kResources = 4;
std::string_view to_string(Resource resource) noexcept;

enum class CollectiveAlgorithm : std::uint8_t {
  ring,       ///< over all ranks, a host's ranks next to one another
  two_level,  ///< rings within hosts and, at the same time for another part of the data, between hosts
  tree,       ///< of hosts, ranks of a host as a chain: all_reduce and broadcast
};
std::string_view to_string(CollectiveAlgorithm algorithm) noexcept;

/// What a collective costs: `latency_s` however little it sends, which merged collectives pay once, and `transfer_s`,
/// which grows with the bytes.
struct CollectiveCost {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  double latency_s = 0;
  double transfer_s = 0;
  [[nodiscard]] double seconds() const { return latency_s + transfer_s; }
};

/// How a group lies on hosts.
struct GroupPlacement {
  int ranks = 1;
  int hosts = 1;           ///< that one set spans, the most of any
  int ranks_per_host = 1;  ///< of one set on one host, the most of any
  int sets_per_host = 1;   ///< that reach beyond a host and share its link with one another, the most on any host
};

/// Seconds that operators take on a cluster. Computation: the roofline, max(flops / flops_per_s, bytes /
/// memory_bytes_per_s). Collectives: alpha-beta formulas (docs/scheduler.md) of the algorithm that is fastest for the
/// bytes, where sets that run at the same time share their hosts' links. OpNode::seconds overrides both.
///
/// Pure; safe to use from several threads.
class CostModel {
 public:
  /// @throws Error{invalid_argument} as check_cluster().
  explicit CostModel(Cluster cluster);

  [[nodiscard]] Cluster const& cluster() const { return cluster_; }
  [[nodiscard]] GroupPlacement placement(OpGroup const& group) const;
  [[nodiscard]] CollectiveCost collective(CollectiveKind kind, std::int64_t bytes, GroupPlacement const& group) const;
  /// By one algorithm. @throws Error{unsupported} where it has none for the kind (tree).
  [[nodiscard]] CollectiveCost collective(CollectiveKind kind, std::int64_t bytes, GroupPlacement const& group,
                                          CollectiveAlgorithm algorithm) const;
  /// What the bytes add, at the least, to a collective that sends others as well: transfer_s of the algorithm of which
  /// that is the least, as it may be another one that is fastest for all of them.
  [[nodiscard]] double least_transfer_s(CollectiveKind kind, std::int64_t bytes, GroupPlacement const& group) const;
  /// Of what is not a collective; `seconds` where it is given.
  [[nodiscard]] double operator_seconds(OpNode const& op) const;
  [[nodiscard]] Resource resource(OpNode const& op, GroupPlacement const& group) const;

 private:
  Cluster cluster_;
};

}  // namespace weft
