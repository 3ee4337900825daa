#include "transport/sim/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weft/error.hpp"

namespace weft::sim {
namespace {

constexpr int kMostRanks = 1 << 20;

[[noreturn]] void refuse(std::string const& why) {
  throw Error(ErrorCode::invalid_argument, "topology: " + why);
}

void check_link(char const* name, LinkSpeed const& link) {
  if (!(link.bytes_per_s > 0) || !std::isfinite(link.bytes_per_s)) {
    refuse(fmt::format("{}.bandwidth is {} bytes/s; it has to be above 0", name, link.bytes_per_s));
  }
  if (!(link.latency_s >= 0 && link.latency_s < 1e3)) {
    refuse(fmt::format("{}.latency is {} s; it has to be from 0 to 1000", name, link.latency_s));
  }
  if (!(link.gap_s >= 0 && link.gap_s < 1e3)) {
    refuse(fmt::format("{}.gap is {} s; it has to be from 0 to 1000", name, link.gap_s));
  }
}

}  // namespace

Topology Topology::flat(int ranks, LinkSpeed link) {
  Topology topology;
  topology.ranks = ranks;
  topology.between = link;
  return topology;
}

void Topology::check() const {
  if (ranks < 1 || ranks > kMostRanks) refuse(fmt::format("ranks is {}; there are 1 to {}", ranks, kMostRanks));
  if (ranks_per_host < 1 || ranks % ranks_per_host != 0) {
    refuse(fmt::format("ranks_per_host is {}, which does not divide {} ranks", ranks_per_host, ranks));
  }
  check_link("between", between);
  if (ranks_per_host > 1) check_link("inside", inside);
  if (rails && shared_nic) refuse("rails needs a NIC for each rank, shared_nic says one a host");
  if (rails && hosts_per_leaf != 0) refuse("rails and hosts_per_leaf exclude each other");
  if (hosts_per_leaf < 0 || (hosts_per_leaf > 0 && (ranks / ranks_per_host) % hosts_per_leaf != 0)) {
    refuse(fmt::format("hosts_per_leaf is {}, which does not divide {} hosts", hosts_per_leaf, ranks / ranks_per_host));
  }
  if (!(oversubscription >= 1 && oversubscription < 1e6)) {
    refuse(fmt::format("oversubscription is {}; it has to be 1 or more", oversubscription));
  }
  if (oversubscription > 1 && !rails && hosts_per_leaf == 0) refuse("oversubscription needs rails or hosts_per_leaf");
  if (!(spine_latency_s >= 0 && spine_latency_s < 1e3)) {
    refuse(fmt::format("spine_latency is {} s; it has to be from 0 to 1000", spine_latency_s));
  }
}

int Network::leaf_of(int rank) const noexcept {
  if (topology_.rails) return rank % topology_.ranks_per_host;
  return topology_.hosts_per_leaf > 0 ? host_of(rank) / topology_.hosts_per_leaf : 0;
}

int Network::leaves() const noexcept {
  return topology_.ranks == 0 ? 0 : leaf_of(topology_.ranks - 1) + 1;
}

double Network::uplink_bytes_per_s() const noexcept {
  auto const nics = topology_.shared_nic ? topology_.ranks / topology_.ranks_per_host : topology_.ranks;
  return topology_.between.bytes_per_s * nics / leaves() / topology_.oversubscription;
}

std::uint32_t Network::add(std::size_t links, LinkSpeed const& speed) {
  auto const first = static_cast<std::uint32_t>(links_.size());
  links_.resize(links_.size() + links, Link{1 / speed.bytes_per_s, from_seconds(speed.gap_s)});
  return first;
}

Network::Network(Topology const& topology, std::vector<Straggler> const& stragglers) : topology_(topology) {
  topology.check();
  auto const ranks = static_cast<std::size_t>(topology.ranks);
  auto const nics = static_cast<std::size_t>(nic_of(topology.ranks - 1)) + 1;
  nic_out_ = add(nics, topology.between);
  nic_in_ = add(nics, topology.between);
  if (topology.ranks_per_host > 1) {
    inside_out_ = add(ranks, topology.inside);
    inside_in_ = add(ranks, topology.inside);
  }
  if (leaves() > 1) {
    LinkSpeed const uplink{0, uplink_bytes_per_s(), 0};
    up_ = add(static_cast<std::size_t>(leaves()), uplink);
    down_ = add(static_cast<std::size_t>(leaves()), uplink);
    for (auto link = up_; link < links_.size(); ++link) links_[link].carries_many = true;
  }
  for (auto const& slow : stragglers) {
    if (slow.rank < 0 || slow.rank >= topology.ranks) {
      refuse(fmt::format("straggler {}: there are ranks 0 to {}", slow.rank, topology.ranks - 1));
    }
    if (!(slow.factor >= 1 && slow.factor < 1e9) || slow.delay < Time{}) {
      refuse(fmt::format("straggler {}: its factor, {}, has to be 1 or more, its delay not negative", slow.rank,
                         slow.factor));
    }
    auto const slow_down = [&](std::uint32_t first, int index) {
      links_[first + static_cast<std::uint32_t>(index)].seconds_per_byte *= slow.factor;
    };
    slow_down(nic_out_, nic_of(slow.rank));
    slow_down(nic_in_, nic_of(slow.rank));
    if (topology.ranks_per_host == 1) continue;
    slow_down(inside_out_, slow.rank);
    slow_down(inside_in_, slow.rank);
  }
}

Network::Route Network::route(int from, int to) const noexcept {
  auto const link = [](std::uint32_t first, int index) { return first + static_cast<std::uint32_t>(index); };
  if (host_of(from) == host_of(to)) {
    return {{link(inside_out_, from), link(inside_in_, to)}, 2, from_seconds(topology_.inside.latency_s)};
  }
  auto const out = link(nic_out_, nic_of(from));
  auto const in = link(nic_in_, nic_of(to));
  if (leaf_of(from) == leaf_of(to)) return {{out, in}, 2, from_seconds(topology_.between.latency_s)};
  return {{out, link(up_, leaf_of(from)), link(down_, leaf_of(to)), in},
          4,
          from_seconds(topology_.between.latency_s + topology_.spine_latency_s)};
}

std::vector<Network::Level> Network::levels() const {
  auto const& t = topology_;
  auto const hosts = t.ranks / t.ranks_per_host;
  auto const nic = t.between.bytes_per_s;
  auto const inside = t.ranks_per_host > 1 ? t.inside.bytes_per_s : 0;
  auto nearest = t.ranks_per_host > 1 ? t.inside.latency_s : t.between.latency_s;
  if (hosts > 1) nearest = std::min(nearest, t.between.latency_s);
  std::vector<Level> levels{{"rank", t.ranks, inside + (hosts > 1 ? nic : 0), nearest}};
  if (t.ranks_per_host > 1 && hosts > 1) {
    levels.push_back({"host", hosts, t.shared_nic ? nic : nic * t.ranks_per_host, t.between.latency_s});
  }
  if (!t.rails && leaves() > 1) {
    levels.push_back({"leaf", leaves(), uplink_bytes_per_s(), t.between.latency_s + t.spine_latency_s});
  }
  return levels;
}

}  // namespace weft::sim
