#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/sim/virtual_time.hpp"

namespace weft::sim {

/// A link's speed: a message of B bytes keeps it busy for gap + B / bytes_per_s, and arrives `latency` after it has
/// left.
struct LinkSpeed {
  double latency_s = 0;
  double bytes_per_s = 1;
  double gap_s = 0;  ///< between two messages, however short
};

/// A cluster: hosts of equal size, with a way out and a way in for each rank (both directions at once), and switches
/// above them that are no bottleneck unless oversubscribed.
struct Topology {
  int ranks = 2;
  int ranks_per_host = 1;  ///< consecutive ranks; where more than one, an island such as NVLink joins them
  LinkSpeed inside{3e-6, 300e9};
  LinkSpeed between{5e-6, 25e9};
  bool shared_nic = false;  ///< one NIC for each host, rather than for each rank
  /// Rail-optimised: NIC i of all hosts is at switch i; messages between different rails go through the spine.
  bool rails = false;
  int hosts_per_leaf = 0;       ///< fat tree: hosts at one leaf switch; 0: one switch for all
  double oversubscription = 1;  ///< bandwidth of the NICs below a leaf switch, divided by that of its ways to the spine
  double spine_latency_s = 0;   ///< added to the latency of what goes through the spine

  /// @throws Error{invalid_argument} naming what is wrong
  void check() const;

  [[nodiscard]] static Topology flat(int ranks, LinkSpeed link = {5e-6, 25e9});
};

/// A slow rank.
struct Straggler {
  int rank = 0;
  double factor = 1;  ///< its links and its reductions take so many times as long
  Time delay{};       ///< it begins later by this
};

/// The links of a topology, and which of them a message takes. A rank's links serve one message after the other, in the
/// order in which messages reach the link. Links between switches serve many at once. A message flows through several
/// links at once.
class Network {
 public:
  struct Link {
    double seconds_per_byte = 0;
    Time gap{};
    bool carries_many = false;  ///< serves many messages at once: none is held up by the one before, all share its rate
  };
  struct Route {
    std::array<std::uint32_t, 4> links{};
    std::uint32_t count = 0;
    Time latency{};
  };
  /// Ranks in groups of equal size, with `bytes_per_s` out of (and into) each group. Lower bounds are computed from it.
  struct Level {
    std::string name;
    int groups = 1;
    double bytes_per_s = 0;
    double latency_s = 0;
  };

  explicit Network(Topology const& topology, std::vector<Straggler> const& stragglers = {});

  [[nodiscard]] Topology const& topology() const noexcept { return topology_; }
  [[nodiscard]] int size() const noexcept { return topology_.ranks; }
  [[nodiscard]] std::vector<Link> const& links() const noexcept { return links_; }
  [[nodiscard]] Route route(int from, int to) const noexcept;
  [[nodiscard]] std::vector<Level> levels() const;

 private:
  [[nodiscard]] std::uint32_t add(std::size_t links, LinkSpeed const& speed);
  [[nodiscard]] int host_of(int rank) const noexcept { return rank / topology_.ranks_per_host; }
  [[nodiscard]] int nic_of(int rank) const noexcept { return topology_.shared_nic ? host_of(rank) : rank; }
  /// The leaf switch that a rank's NIC is connected to.
  [[nodiscard]] int leaf_of(int rank) const noexcept;
  [[nodiscard]] int leaves() const noexcept;
  [[nodiscard]] double uplink_bytes_per_s() const noexcept;

  Topology topology_;
  std::vector<Link> links_;
  std::uint32_t inside_out_ = 0, inside_in_ = 0, nic_out_ = 0, nic_in_ = 0, up_ = 0, down_ = 0;  // first link of each
};

}  // namespace weft::sim
