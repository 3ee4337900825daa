#include "core/topology.hpp"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <type_traits>

#include "weft/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kUnknownL2 = std::size_t{1} << 20;
constexpr std::size_t kUnknownL3 = std::size_t{8} << 20;

/// An affinity mask as large as the kernel's, which may exceed CPU_SETSIZE.
class CpuSet {
 public:
  explicit CpuSet(int cpus) : count_(cpus), set_(CPU_ALLOC(cpus)) {
    if (set_ == nullptr) throw Error(ErrorCode::out_of_memory, "cannot allocate a CPU set");
    CPU_ZERO_S(bytes(), set_);
  }
  CpuSet(CpuSet const&) = delete;
  CpuSet& operator=(CpuSet const&) = delete;
  ~CpuSet() { CPU_FREE(set_); }

  [[nodiscard]] std::size_t bytes() const noexcept { return CPU_ALLOC_SIZE(count_); }
  [[nodiscard]] cpu_set_t* get() const noexcept { return set_; }
  [[nodiscard]] int count() const noexcept { return count_; }
  void add(int cpu) noexcept { CPU_SET_S(cpu, bytes(), set_); }
  [[nodiscard]] bool has(int cpu) const noexcept { return CPU_ISSET_S(cpu, bytes(), set_); }

 private:
  int count_;
  cpu_set_t* set_;
};

std::vector<int> allowed_cpus() {
  for (int capacity = 1024; capacity <= (1 << 20); capacity *= 2) {
    CpuSet set(capacity);
    if (sched_getaffinity(getpid(), set.bytes(), set.get()) != 0) {
      if (errno == EINVAL) continue;  // the kernel's mask is larger
      throw Error(ErrorCode::system, fmt::format("sched_getaffinity failed: {}", std::strerror(errno)));
    }
    std::vector<int> cpus;
    for (int cpu = 0; cpu < capacity; ++cpu) {
      if (set.has(cpu)) cpus.push_back(cpu);
    }
    return cpus;
  }
  throw Error(ErrorCode::system, "sched_getaffinity: no mask size was accepted");
}

using TopologyHandle = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;

TopologyHandle load_hwloc() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw Error(ErrorCode::system, "hwloc_topology_init failed");
  TopologyHandle topology(raw, &hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) throw Error(ErrorCode::system, "hwloc_topology_load failed");
  return topology;
}

/// Size of the cache of `type` above the first allowed CPU.
std::size_t cache_bytes(hwloc_topology_t topology, int cpu, hwloc_obj_type_t type, std::size_t unknown) {
  hwloc_obj_t const unit = hwloc_get_pu_obj_by_os_index(topology, static_cast<unsigned>(cpu));
  hwloc_obj_t const cache = unit == nullptr ? nullptr : hwloc_get_ancestor_obj_by_type(topology, type, unit);
  return cache == nullptr || cache->attr->cache.size == 0 ? unknown : cache->attr->cache.size;
}

/// Whether the processor's maker is known for the owned state of MOESI: AMD, and Hygon after it.
bool has_owned_lines(hwloc_topology_t topology) {
  hwloc_obj_t const package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  char const* const vendor = package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUVendor");
  return vendor != nullptr &&
         (std::string_view(vendor) == "AuthenticAMD" || std::string_view(vendor) == "HygonGenuine");
}

/// `allowed` in hwloc's order, in which the hardware threads of a core, the cores of a cache and the caches of a socket
/// are neighbours, so that a contiguous share is a compact one.
std::vector<int> in_hardware_order(hwloc_topology_t topology, std::vector<int> const& allowed) {
  std::vector<int> ordered;
  hwloc_obj_t unit = nullptr;
  while ((unit = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, unit)) != nullptr) {
    int const cpu = static_cast<int>(unit->os_index);
    if (std::binary_search(allowed.begin(), allowed.end(), cpu)) ordered.push_back(cpu);
  }
  return ordered.size() == allowed.size() ? ordered : allowed;
}

int count_cores(hwloc_topology_t topology, std::vector<int> const& cpus) {
  std::vector<hwloc_obj_t> cores;
  for (int const cpu : cpus) {
    hwloc_obj_t const unit = hwloc_get_pu_obj_by_os_index(topology, static_cast<unsigned>(cpu));
    hwloc_obj_t const core = unit == nullptr ? nullptr : hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, unit);
    if (core == nullptr) return static_cast<int>(cpus.size());  // no core information: each CPU counts
    cores.push_back(core);
  }
  std::sort(cores.begin(), cores.end());
  return static_cast<int>(std::unique(cores.begin(), cores.end()) - cores.begin());
}

}  // namespace

Topology discover_topology() {
  std::vector<int> const allowed = allowed_cpus();
  TopologyHandle const hwloc = load_hwloc();
  Topology topology;
  topology.cpus = in_hardware_order(hwloc.get(), allowed);
  topology.l2_bytes = cache_bytes(hwloc.get(), topology.cpus.front(), HWLOC_OBJ_L2CACHE, kUnknownL2);
  topology.l3_bytes = cache_bytes(hwloc.get(), topology.cpus.front(), HWLOC_OBJ_L3CACHE, kUnknownL3);
  topology.has_owned_lines = has_owned_lines(hwloc.get());
  topology.cores = std::max(1, count_cores(hwloc.get(), topology.cpus));
  return topology;
}

std::vector<int> l3_caches_of(std::vector<int> const& cpus) {
  TopologyHandle const hwloc = load_hwloc();
  std::vector<int> caches;
  for (int const cpu : cpus) {
    hwloc_obj_t const unit = hwloc_get_pu_obj_by_os_index(hwloc.get(), static_cast<unsigned>(cpu));
    hwloc_obj_t place =
        unit == nullptr ? nullptr : hwloc_get_ancestor_obj_by_type(hwloc.get(), HWLOC_OBJ_L3CACHE, unit);
    if (place == nullptr && unit != nullptr)
      place = hwloc_get_ancestor_obj_by_type(hwloc.get(), HWLOC_OBJ_PACKAGE, unit);
    caches.push_back(place == nullptr ? 0 : static_cast<int>(place->logical_index));
  }
  return caches;
}

void bind_this_thread(std::vector<int> const& cpus) {
  if (cpus.empty() || *std::min_element(cpus.begin(), cpus.end()) < 0) {
    throw Error(ErrorCode::invalid_argument, "bind_this_thread: needs CPU numbers, none of them negative");
  }
  CpuSet set(std::max(1024, *std::max_element(cpus.begin(), cpus.end()) + 1));
  for (int const cpu : cpus) set.add(cpu);
  if (sched_setaffinity(0, set.bytes(), set.get()) != 0) {
    throw Error(ErrorCode::system, fmt::format("cannot bind to CPU {}{}: {}", cpus.front(),
                                               cpus.size() > 1 ? " and others" : "", std::strerror(errno)));
  }
}

std::vector<int> share_of_cpus(std::vector<int> const& cpus, int rank, int ranks) {
  if (cpus.empty() || rank < 0 || rank >= ranks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("share_of_cpus: rank {} of {} over {} CPUs", rank, ranks, cpus.size()));
  }
  auto const count = static_cast<long>(cpus.size());
  if (count < ranks) return {cpus[static_cast<std::size_t>(rank % count)]};
  return {cpus.begin() + count * rank / ranks, cpus.begin() + count * (rank + 1) / ranks};
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  }
  return "unknown processor";
}

std::string format_ranges(std::vector<int> const& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    auto const first = i;
    while (i + 1 < cpus.size() && cpus[i + 1] == cpus[i] + 1) ++i;
    text += fmt::format("{}{}{}", text.empty() ? "" : ",", cpus[first], i > first ? fmt::format("-{}", cpus[i]) : "");
  }
  return text;
}

}  // namespace weft
