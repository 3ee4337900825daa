#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/sim/virtual_time.hpp"

namespace weft::sim {

/// What a link does to a message of B bytes: it is busy for gap + B / bandwidth, and what left arrives `latency` later.
struct LinkSpeed {
  double latency_s = 0;
  double bytes_per_s = 1;
  double gap_s = 0;  ///< between two messages, however short
};

/// A cluster: hosts of equal size, each rank with a way out and a way in (both directions at once), switches above them
/// that block nothing unless oversubscribed.
struct Topology {
  int ranks = 2;
  int ranks_per_host = 1;  ///< consecutive; more than one: an island such as NVLink joins them
  LinkSpeed inside{3e-6, 300e9};
  LinkSpeed between{5e-6, 25e9};
  bool shared_nic = false;  ///< one NIC a host instead of one a rank
  /// Rail-optimised: NIC i of all hosts is at switch i; what changes rails goes through the spine.
  bool rails = false;
  int hosts_per_leaf = 0;       ///< fat tree: hosts at one leaf switch; 0: one switch for all
  double oversubscription = 1;  ///< of the ways up to the spine: so many times less than the NICs below together
  double spine_latency_s = 0;   ///< more, for what goes through the spine

  /// @throws Error{invalid_argument} naming what is wrong
  void check() const;

  [[nodiscard]] static Topology flat(int ranks, LinkSpeed link = {5e-6, 25e9});
};

/// A slow rank.
struct Straggler {
  int rank = 0;
  double factor = 1;  ///< its links and its reductions take so many times as long
  Time delay{};       ///< it begins so much later
};

/// The links of a topology, and which of them a message takes. A rank's links serve one message after the other, in the
/// order in which they reach it, those between switches many at once; a message flows through several links at once.
class Network {
 public:
  struct Link {
    double seconds_per_byte = 0;
    Time gap{};
    bool carries_many = false;  ///< messages at once: nobody waits for the one before, but all for the link's bytes
  };
  struct Route {
    std::array<std::uint32_t, 4> links{};
    std::uint32_t count = 0;
    Time latency{};
  };
  /// Ranks in groups of equal size with `bytes_per_s` out of (and into) each: what bounds are computed from.
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
  /// The switch that a rank's NIC is at.
  [[nodiscard]] int leaf_of(int rank) const noexcept;
  [[nodiscard]] int leaves() const noexcept;
  [[nodiscard]] double uplink_bytes_per_s() const noexcept;

  Topology topology_;
  std::vector<Link> links_;
  std::uint32_t inside_out_ = 0, inside_in_ = 0, nic_out_ = 0, nic_in_ = 0, up_ = 0, down_ = 0;  // the first of each
};

}  // namespace weft::sim
