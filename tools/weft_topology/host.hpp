#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace weft::topology {

/// A network card or a port of one.
struct Nic {
  std::string name;    ///< "eth0"
  std::string state;   ///< "up", "down", …, as the kernel reports
  int speed_mbit = 0;  ///< as the card reports; 0: unknown, as for many virtual cards
  int mtu = 0;         ///< bytes
  int numa = -1;       ///< the nearest NUMA node; -1: unknown
  std::string pci;     ///< "0000:3b:00.0"; empty if it is on no PCI bus
  bool operator==(Nic const&) const = default;
};

/// A GPU or other accelerator on the PCI bus.
struct Gpu {
  std::string name;  ///< of the vendor, as far as the system knows it
  std::string pci;
  int numa = -1;
  std::vector<std::string> distances;  ///< to each of Host::nics: "switch", "bridge", "node", "system"; empty: unknown
  bool operator==(Gpu const&) const = default;
};

/// The hardware of one host, as one of its ranks sees it.
struct Host {
  std::string name;      ///< as `hostname` prints it
  std::string identity;  ///< the library's own, equal on ranks that share memory; names may be equal on two hosts
  std::string processor;
  int cores = 0;    ///< physical, that this rank may use
  int threads = 0;  ///< hardware threads of those
  int numa_nodes = 0;
  int sockets = 0;
  std::vector<Nic> nics;
  std::vector<Gpu> gpus;
  bool operator==(Host const&) const = default;
};

/// Describes this host from /sys and hwloc. The caller sets the identity. Unknown members keep their defaults.
/// @throws std::runtime_error without hwloc.
[[nodiscard]] Host look_at_this_host();

void to_json(nlohmann::json& json, Host const& host);
void from_json(nlohmann::json const& json, Host& host);

}  // namespace weft::topology
