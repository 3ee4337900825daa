#include "weft_topology/host.hpp"

#include <fmt/format.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>

namespace weft::topology {
namespace {

namespace fs = std::filesystem;

using Tree = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;

/// With PCI devices, whether or not a driver uses them.
Tree load_tree() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw std::runtime_error("hwloc_topology_init failed");
  Tree tree(raw, &hwloc_topology_destroy);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(raw) != 0) throw std::runtime_error("hwloc_topology_load failed");
  return tree;
}

template <typename T>
T read_or(fs::path const& file, T unknown) {
  T value{};
  return std::ifstream(file) >> value ? value : unknown;
}

/// The PCI address of a device's link in /sys, which ends in it; of a virtual function of it that is its bus's name.
std::string pci_of(fs::path const& device) {
  for (auto path = fs::weakly_canonical(device); path.has_filename() && path.has_relative_path();
       path = path.parent_path()) {
    auto name = path.filename().string();
    if (name.size() == 12 && name[4] == ':' && name[7] == ':' && name[10] == '.') return name;
  }
  return {};
}

std::vector<Nic> find_nics() {
  std::vector<Nic> nics;
  std::error_code none;
  for (auto const& entry : fs::directory_iterator("/sys/class/net", none)) {
    Nic nic;
    nic.name = entry.path().filename().string();
    if (nic.name == "lo" || !fs::exists(entry.path() / "operstate")) continue;
    nic.state = read_or<std::string>(entry.path() / "operstate", "unknown");
    nic.speed_mbit = std::max(0, read_or(entry.path() / "speed", 0));
    nic.mtu = read_or(entry.path() / "mtu", 0);
    nic.numa = read_or(entry.path() / "device/numa_node", -1);
    if (fs::exists(entry.path() / "device")) nic.pci = pci_of(entry.path() / "device");
    nics.push_back(nic);
  }
  std::sort(nics.begin(), nics.end(), [](Nic const& a, Nic const& b) { return a.name < b.name; });
  return nics;
}

hwloc_obj_t find_device(hwloc_topology_t tree, std::string const& pci) {
  return pci.empty() ? nullptr : hwloc_get_pcidev_by_busidstring(tree, pci.c_str());
}

/// How far apart two PCI devices are, by what they meet under.
std::string distance(hwloc_topology_t tree, hwloc_obj_t one, hwloc_obj_t other) {
  if (one == nullptr || other == nullptr) return "";
  auto const* const meeting = hwloc_get_common_ancestor_obj(tree, one, other);
  if (meeting->type == HWLOC_OBJ_PCI_DEVICE) return "switch";
  if (meeting->type == HWLOC_OBJ_BRIDGE) {
    return meeting->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI ? "switch" : "bridge";
  }
  return meeting->type == HWLOC_OBJ_MACHINE && hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_PACKAGE) > 1 ? "system"
                                                                                                     : "node";
}

int numa_of(hwloc_topology_t tree, hwloc_obj_t device) {
  auto const* const near = hwloc_get_non_io_ancestor_obj(tree, device);
  return near == nullptr || near->nodeset == nullptr ? -1 : hwloc_bitmap_first(near->nodeset);
}

bool is_gpu(hwloc_obj_t device) {
  constexpr unsigned kDisplay3d = 0x0302;
  constexpr unsigned kNvidia = 0x10de;
  constexpr unsigned kAmd = 0x1002;
  constexpr unsigned kDisplay = 0x03;
  auto const& pci = device->attr->pcidev;
  bool const maker = pci.vendor_id == kNvidia || pci.vendor_id == kAmd;
  return pci.class_id == kDisplay3d || (maker && pci.class_id >> 8U == kDisplay);
}

std::vector<Gpu> find_gpus(hwloc_topology_t tree, std::vector<Nic> const& nics) {
  std::vector<Gpu> gpus;
  for (auto* device = hwloc_get_next_pcidev(tree, nullptr); device != nullptr;
       device = hwloc_get_next_pcidev(tree, device)) {
    if (!is_gpu(device)) continue;
    auto const& at = device->attr->pcidev;
    Gpu gpu;
    gpu.pci = fmt::format("{:04x}:{:02x}:{:02x}.{:x}", at.domain, at.bus, at.dev, at.func);
    char const* const model = hwloc_obj_get_info_by_name(device, "PCIDevice");
    char const* const maker = hwloc_obj_get_info_by_name(device, "PCIVendor");
    gpu.name = model != nullptr   ? model
               : maker != nullptr ? maker
                                  : fmt::format("{:04x}:{:04x}", at.vendor_id, at.device_id);
    gpu.numa = numa_of(tree, device);
    for (auto const& nic : nics) gpu.distances.push_back(distance(tree, device, find_device(tree, nic.pci)));
    gpus.push_back(gpu);
  }
  return gpus;
}

/// As /proc/cpuinfo calls it, or hwloc.
std::string processor_of(hwloc_topology_t tree) {
  auto* const package = hwloc_get_obj_by_type(tree, HWLOC_OBJ_PACKAGE, 0);
  char const* const model = package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
  return model == nullptr ? "unknown processor" : model;
}

}  // namespace

Host look_at_this_host() {
  // Kept for good: destroyed with its PCI plugin, what that leaves behind is reachable no more, a leak to
  // AddressSanitizer.
  static auto const& tree = *new Tree(load_tree());
  Host host;
  std::array<char, 256> name{};
  host.name = gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
  host.processor = processor_of(tree.get());
  auto* const usable = hwloc_bitmap_alloc();
  hwloc_get_cpubind(tree.get(), usable, HWLOC_CPUBIND_PROCESS);
  host.threads = std::max(0, hwloc_bitmap_weight(usable));
  host.cores = hwloc_get_nbobjs_inside_cpuset_by_type(tree.get(), usable, HWLOC_OBJ_CORE);
  if (host.cores == 0) host.cores = host.threads;  // where some threads of every core are somebody else's
  hwloc_bitmap_free(usable);
  host.numa_nodes = hwloc_get_nbobjs_by_type(tree.get(), HWLOC_OBJ_NUMANODE);
  host.sockets = hwloc_get_nbobjs_by_type(tree.get(), HWLOC_OBJ_PACKAGE);
  host.nics = find_nics();
  host.gpus = find_gpus(tree.get(), host.nics);
  return host;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Nic, name, state, speed_mbit, mtu, numa, pci)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, name, pci, numa, distances)

void to_json(nlohmann::json& json, Host const& host) {
  json = {{"name", host.name},       {"identity", host.identity}, {"processor", host.processor},
          {"cores", host.cores},     {"threads", host.threads},   {"numa_nodes", host.numa_nodes},
          {"sockets", host.sockets}, {"nics", host.nics},         {"gpus", host.gpus}};
}

void from_json(nlohmann::json const& json, Host& host) {
  json.at("name").get_to(host.name);
  json.at("identity").get_to(host.identity);
  json.at("processor").get_to(host.processor);
  json.at("cores").get_to(host.cores);
  json.at("threads").get_to(host.threads);
  json.at("numa_nodes").get_to(host.numa_nodes);
  json.at("sockets").get_to(host.sockets);
  json.at("nics").get_to(host.nics);
  json.at("gpus").get_to(host.gpus);
}

}  // namespace weft::topology
