#pragma once

#include <vector>

#include "transport/transport.hpp"

namespace weft::p2p {

/// The network's part of a CostQuestion.
struct NetworkCosts {
  double alpha_s = 20e-6;              ///< of TCP over Ethernet, about
  double beta_s_per_byte = 1 / 1.5e9;  ///< ... of 10 Gb/s

  friend bool operator==(NetworkCosts const&, NetworkCosts const&) = default;
};

/// Measures the network while all ranks use it at once: each sends to the rank `distance` further on and receives from
/// the one `distance` back. These are a few messages of 8 bytes, of 16 KiB and, where those take no longer than
/// kMostSmall, of 256 KiB. Of each rank the fastest exchanges count, and of those the slowest rank's; the result is
/// equal on all ranks. Collective; Pre: more than one rank, 0 < distance < ranks, nothing else under way. By their
/// bytes the messages take 7 ms at 1 Gb/s; at 66 Mb/s, the least at which the long ones are sent, 0.1 s.
/// @throws what the transport throws
[[nodiscard]] NetworkCosts measure_network(Transport& transport, int distance);

/// The distance at which most ranks have a partner on another host, the least of several. `hosts`: the number of each
/// rank's host.
[[nodiscard]] int farthest(std::vector<int> const& hosts);

}  // namespace weft::p2p
