#include "transport/ucx/net_devices.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

#include "weft/error.hpp"

namespace weft::ucx {
namespace {

struct Interface {
  std::string name;
  std::string address;  // as bytes
  bool is_loopback = false;
};

/// The bytes of an IPv4 or IPv6 address; empty for others.
std::string address_bytes(sockaddr const* address) {
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    auto const& four = reinterpret_cast<sockaddr_in const*>(address)->sin_addr;
    return {reinterpret_cast<char const*>(&four), sizeof four};
  }
  if (address->sa_family == AF_INET6) {
    auto const& six = reinterpret_cast<sockaddr_in6 const*>(address)->sin6_addr;
    return {reinterpret_cast<char const*>(&six), sizeof six};
  }
  return {};
}

/// The interfaces that are up, with an entry for every address.
std::vector<Interface> list_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> const owner(first, &freeifaddrs);
  std::vector<Interface> all;
  for (auto const* each = first; each != nullptr; each = each->ifa_next) {
    auto const bytes = address_bytes(each->ifa_addr);
    if (bytes.empty() || (each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_RUNNING) == 0) continue;
    all.push_back({each->ifa_name, bytes, (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return all;
}

std::vector<std::string> infiniband_ports() {
  std::vector<std::string> ports;
  std::error_code none;
  for (auto const& device : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    for (auto const& port : std::filesystem::directory_iterator(device.path() / "ports", none)) {
      ports.push_back(fmt::format("{}:{}", device.path().filename().string(), port.path().filename().string()));
    }
  }
  std::sort(ports.begin(), ports.end());
  return ports;
}

/// The interface by which datagrams to `host` would leave; empty where that cannot be found out.
std::string interface_towards(char const* host, std::vector<Interface> const& all) {
  if (host == nullptr || *host == '\0') return {};
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host, "9", &hints, &found) != 0) return {};
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> const owner(found, &freeaddrinfo);
  for (auto const* each = found; each != nullptr; each = each->ai_next) {
    int const probe = socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);  // it sends nothing
    if (probe < 0) continue;
    sockaddr_storage here{};
    socklen_t length = sizeof here;
    auto const known = connect(probe, each->ai_addr, each->ai_addrlen) == 0 &&
                       getsockname(probe, reinterpret_cast<sockaddr*>(&here), &length) == 0;
    close(probe);
    if (!known) continue;
    auto const bytes = address_bytes(reinterpret_cast<sockaddr const*>(&here));
    auto const at = std::find_if(all.begin(), all.end(),
                                 [&](Interface const& one) { return !one.is_loopback && one.address == bytes; });
    if (at != all.end()) return at->name;
  }
  return {};
}

std::string interface_of_default_route() {
  std::ifstream routes("/proc/net/route");
  std::string line;
  std::getline(routes, line);  // headings
  while (std::getline(routes, line)) {
    std::istringstream fields(line);
    std::string name;
    std::string destination;
    fields >> name >> destination;
    if (destination == "00000000") return name;
  }
  return {};
}

std::string choose_interface(bool several_machines) {
  auto const all = list_interfaces();
  std::vector<std::string> names;
  for (auto const& each : all) {
    auto const known = std::find(names.begin(), names.end(), each.name) != names.end();
    if (!each.is_loopback && !known) names.push_back(each.name);
  }
  if (!several_machines || names.empty()) return "lo";
  if (names.size() == 1) return names.front();
  auto towards = interface_towards(std::getenv("MASTER_ADDR"), all);
  if (!towards.empty()) return towards;
  auto usual = interface_of_default_route();
  if (!usual.empty()) return usual;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("this host has several network interfaces ({}) and no default route: set WEFT_NET_DEVICES to "
                          "those that lead to the other hosts",
                          fmt::join(names, ", ")));
}

/// Refuses names of interfaces that are not up; UCX would only say that it reaches nobody. Names that are not plain,
/// such as an InfiniBand port or a pattern, are left to UCX.
void refuse_unknown(std::string const& devices) {
  std::set<std::string> known{"all"};
  for (auto const& each : list_interfaces()) known.insert(each.name);
  std::istringstream names(devices);
  for (std::string name; std::getline(names, name, ',');) {
    auto const is_plain = std::all_of(name.begin(), name.end(), [](unsigned char each) {
      return std::isalnum(each) != 0 || each == '_' || each == '-' || each == '.';
    });
    if (!is_plain || known.count(name) > 0) continue;
    known.erase("all");
    throw Error(ErrorCode::invalid_argument,
                fmt::format("WEFT_NET_DEVICES={}: this host has no network interface \"{}\" that is up; it has {}",
                            devices, name, fmt::join(known, ", ")));
  }
}

}  // namespace

std::string choose_net_devices(std::optional<std::string> const& told, bool several_machines) {
  if (told) {
    refuse_unknown(*told);
    return *told;
  }
  if (std::getenv("UCX_NET_DEVICES") != nullptr) return {};
  auto devices = infiniband_ports();
  devices.push_back(choose_interface(several_machines));
  return fmt::format("{}", fmt::join(devices, ","));
}

}  // namespace weft::ucx
