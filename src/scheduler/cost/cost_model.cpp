#include "weft/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "weft/error.hpp"

namespace weft {

namespace {

constexpr std::array<std::string_view, kResources> kResourceNames = {"compute", "between_hosts", "within_host", "copy"};
constexpr std::array<std::string_view, 3> kAlgorithmNames = {"ring", "two_level", "tree"};

int steps_of_tree(int hosts) {
  return hosts > 1 ? static_cast<int>(std::ceil(std::log2(hosts))) : 0;
}

/// The rates and sizes that the formulas share.
struct Terms {
  double n;         ///< ranks of a set
  double hosts;     ///< of a set
  double per_host;  ///< its ranks on one host
  double within;    ///< bytes/s between two ranks of a host
  double between;   ///< bytes/s of one host for one set
  double step;      ///< seconds of a step that crosses hosts, or of one within the only host
  double step_within;
};

Terms terms_of(Cluster const& cluster, GroupPlacement const& group) {
  Terms terms{};
  terms.n = group.ranks;
  terms.hosts = group.hosts;
  terms.per_host = group.ranks_per_host;
  terms.within = cluster.within.bytes_per_s;
  terms.between = cluster.between.bytes_per_s / group.sets_per_host;
  terms.step_within = cluster.within.step_s;
  terms.step = group.hosts > 1 ? std::max(cluster.between.step_s, cluster.within.step_s) : cluster.within.step_s;
  return terms;
}

/// Bytes per second of a ring's slowest hop.
double hop(Terms const& t) {
  if (t.hosts <= 1) return t.within;
  return t.per_host > 1 ? std::min(t.within, t.between) : t.between;
}

CollectiveCost ring(CollectiveKind kind, double bytes, Terms const& t) {
  double const passes = kind == CollectiveKind::all_reduce ? 2 : 1;
  double const steps = t.n - 1;
  switch (kind) {
    case CollectiveKind::all_to_all: {
      // Every rank sends bytes / n to each other rank; ranks of a host share its link.
      double const inside = bytes * (t.per_host - 1) / t.n / t.within;
      double const outside = t.hosts > 1 ? bytes * t.per_host * (t.n - t.per_host) / t.n / t.between : 0;
      return {CollectiveAlgorithm::ring, steps * t.step, std::max(inside, outside)};
    }
    case CollectiveKind::permute: return {CollectiveAlgorithm::ring, t.step, bytes / hop(t)};
    case CollectiveKind::broadcast: return {CollectiveAlgorithm::ring, steps * t.step, bytes / hop(t)};
    default: return {CollectiveAlgorithm::ring, passes * steps * t.step, passes * bytes * steps / t.n / hop(t)};
  }
}

CollectiveCost two_level(CollectiveKind kind, double bytes, Terms const& t) {
  double const passes = kind == CollectiveKind::all_reduce ? 2 : 1;
  double const inside = bytes * (t.per_host - 1) / t.per_host / t.within;
  double const outside = bytes * (t.hosts - 1) / t.hosts / t.between;
  double const steps = (t.hosts - 1) * t.step + (t.per_host - 1) * t.step_within;
  return {CollectiveAlgorithm::two_level, passes * steps, passes * std::max(inside, outside)};
}

CollectiveCost tree(CollectiveKind kind, double bytes, Terms const& t) {
  double const passes = kind == CollectiveKind::all_reduce ? 2 : 1;
  double const steps = steps_of_tree(static_cast<int>(t.hosts)) * t.step + (t.per_host - 1) * t.step_within;
  // Two trees, in each of which half of the ranks have children, send every byte once up and once down.
  return {CollectiveAlgorithm::tree, passes * steps, passes * bytes / hop(t)};
}

bool has_two_levels(CollectiveKind kind, GroupPlacement const& group) {
  return group.hosts > 1 && group.ranks_per_host > 1 && kind != CollectiveKind::all_to_all &&
         kind != CollectiveKind::permute && kind != CollectiveKind::broadcast;
}

bool has_trees(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::broadcast;
}

/// Visits the algorithms that exist for the kind, the ring first.
template <typename Visit>
void for_each_algorithm(CollectiveKind kind, GroupPlacement const& group, Visit const& visit) {
  visit(CollectiveAlgorithm::ring);
  if (has_two_levels(kind, group)) visit(CollectiveAlgorithm::two_level);
  if (has_trees(kind)) visit(CollectiveAlgorithm::tree);
}

}  // namespace

std::string_view to_string(Resource resource) noexcept {
  return kResourceNames[static_cast<std::size_t>(resource)];
}
std::string_view to_string(CollectiveAlgorithm algorithm) noexcept {
  return kAlgorithmNames[static_cast<std::size_t>(algorithm)];
}

CostModel::CostModel(Cluster cluster) : cluster_(std::move(cluster)) {
  check_cluster(cluster_);
}

GroupPlacement CostModel::placement(OpGroup const& group) const {
  GroupPlacement placement;
  std::map<int, int> reaching;  // by host: how many sets leave it
  for (auto const& set : group.sets) {
    std::map<int, int> on_host;
    for (int const rank : set) ++on_host[rank / cluster_.ranks_per_host];
    placement.ranks = static_cast<int>(set.size());
    placement.hosts = std::max(placement.hosts, static_cast<int>(on_host.size()));
    for (auto const& [host, ranks] : on_host) {
      placement.ranks_per_host = std::max(placement.ranks_per_host, ranks);
      if (on_host.size() > 1) ++reaching[host];
    }
  }
  for (auto const& [host, sets] : reaching) placement.sets_per_host = std::max(placement.sets_per_host, sets);
  return placement;
}

CollectiveCost CostModel::collective(CollectiveKind kind, std::int64_t bytes, GroupPlacement const& group,
                                     CollectiveAlgorithm algorithm) const {
  auto const size = static_cast<double>(bytes);
  if (group.ranks <= 1) return {algorithm, 0, 0};
  Terms const terms = terms_of(cluster_, group);
  switch (algorithm) {
    case CollectiveAlgorithm::ring: return ring(kind, size, terms);
    case CollectiveAlgorithm::two_level:
      if (has_two_levels(kind, group)) return two_level(kind, size, terms);
      break;
    case CollectiveAlgorithm::tree:
      if (has_trees(kind)) return tree(kind, size, terms);
      break;
  }
  throw Error(ErrorCode::unsupported, fmt::format("{} of {} ranks on {} hosts has no {} algorithm", to_string(kind),
                                                  group.ranks, group.hosts, to_string(algorithm)));
}

CollectiveCost CostModel::collective(CollectiveKind kind, std::int64_t bytes, GroupPlacement const& group) const {
  CollectiveCost best;
  for_each_algorithm(kind, group, [&](CollectiveAlgorithm algorithm) {
    CollectiveCost const cost = collective(kind, bytes, group, algorithm);
    if (algorithm == CollectiveAlgorithm::ring || cost.seconds() < best.seconds()) best = cost;
  });
  return best;
}

double CostModel::least_transfer_s(CollectiveKind kind, std::int64_t bytes, GroupPlacement const& group) const {
  double least = collective(kind, bytes, group, CollectiveAlgorithm::ring).transfer_s;
  for_each_algorithm(kind, group, [&](CollectiveAlgorithm algorithm) {
    least = std::min(least, collective(kind, bytes, group, algorithm).transfer_s);
  });
  return least;
}

double CostModel::operator_seconds(OpNode const& op) const {
  if (op.seconds) return *op.seconds;
  if (op.kind == OpKind::copy) {
    double const rate = cluster_.copy_bytes_per_s > 0 ? cluster_.copy_bytes_per_s : cluster_.memory_bytes_per_s;
    return op.memory_bytes / rate;
  }
  return cluster_.operator_s + std::max(op.flops / cluster_.flops_per_s, op.memory_bytes / cluster_.memory_bytes_per_s);
}

Resource CostModel::resource(OpNode const& op, GroupPlacement const& group) const {
  switch (op.kind) {
    case OpKind::collective: return group.hosts > 1 ? Resource::between_hosts : Resource::within_host;
    case OpKind::copy: return Resource::copy;
    default: return Resource::compute;
  }
}

}  // namespace weft
