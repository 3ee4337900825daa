#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace weft::topology {

/// A network card or a port of one.
struct Nic {
  std::string name;    ///< "eth0"
  std::string state;   ///< "up", "down", …; as the kernel says
  int speed_mbit = 0;  ///< what it says of itself; 0 unknown, as of many virtual ones
  int mtu = 0;         ///< bytes
  int numa = -1;       ///< the NUMA node that it is next to; -1 unknown
  std::string pci;     ///< "0000:3b:00.0"; empty where it is on no PCI bus
  bool operator==(Nic const&) const = default;
};

/// A GPU or other accelerator that PCI knows.
struct Gpu {
  std::string name;  ///< of the vendor, as far as the system knows it
  std::string pci;
  int numa = -1;
  std::vector<std::string> distances;  ///< to each of Host::nics: "switch", "bridge", "node", "system"; empty: unknown
  bool operator==(Gpu const&) const = default;
};

/// What one host is made of, as one of its ranks sees it.
struct Host {
  std::string name;      ///< as `hostname` says
  std::string identity;  ///< what ranks that share memory have in common: the library's own; names may be alike
  std::string processor;
  int cores = 0;    ///< physical, that this rank may use
  int threads = 0;  ///< hardware threads of those
  int numa_nodes = 0;
  int sockets = 0;
  std::vector<Nic> nics;
  std::vector<Gpu> gpus;
  bool operator==(Host const&) const = default;
};

/// Reads /sys and what hwloc finds; the identity is left to the caller. What is unknown stays as it is by default.
/// @throws std::runtime_error without hwloc
[[nodiscard]] Host look_at_this_host();

void to_json(nlohmann::json& json, Host const& host);
void from_json(nlohmann::json const& json, Host& host);

}  // namespace weft::topology
