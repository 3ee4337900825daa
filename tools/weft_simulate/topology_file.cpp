#include "weft_simulate/topology_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scheduler/graph/shallow_text.hpp"
#include "weft/error.hpp"
#include "weft_simulate/settings.hpp"

namespace weft::simulate_tool {
namespace {

using nlohmann::json;
using sim::LinkSpeed;
using sim::Topology;

struct Preset {
  std::string_view name;
  Topology topology;
};

/// Round numbers of usual clusters: hosts of 8 with NVLink (450 GB/s a rank) and 400 Gb/s NICs; a plain network of 25
/// GB/s.
std::vector<Preset> presets() {
  Topology flat;
  flat.ranks = 16;
  flat.between = {5e-6, 25e9, 200e-9};
  Topology nvlink;
  nvlink.ranks = 64;
  nvlink.ranks_per_host = 8;
  nvlink.inside = {3e-6, 450e9, 100e-9};
  nvlink.between = {6e-6, 50e9, 200e-9};
  auto shared = nvlink;
  shared.shared_nic = true;
  auto rail = nvlink;
  rail.rails = true;
  rail.oversubscription = 4;
  rail.spine_latency_s = 2e-6;
  auto tree = nvlink;
  tree.hosts_per_leaf = 4;
  tree.oversubscription = 2;
  tree.spine_latency_s = 2e-6;
  return {{"flat", flat}, {"nvlink", nvlink}, {"nvlink_shared_nic", shared}, {"rail", rail}, {"fat_tree", tree}};
}

/// Reads members of one object and refuses those nobody asked for.
class Members {
 public:
  Members(json const& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) refuse("is no object");
  }

  void number(char const* name, double& value) {
    auto const* const found = find(name);
    if (found == nullptr) return;
    if (!found->is_number()) refuse(fmt::format("\"{}\" is {}, no number", name, found->dump()));
    value = found->get<double>();
  }
  void whole(char const* name, int& value) {
    double read = value;
    number(name, read);
    if (std::floor(read) != read || std::abs(read) > 1e9)
      refuse(fmt::format("\"{}\" is {}, no whole number", name, read));
    value = static_cast<int>(read);
  }
  void truth(char const* name, bool& value) {
    auto const* const found = find(name);
    if (found == nullptr) return;
    if (!found->is_boolean()) refuse(fmt::format("\"{}\" is {}, neither true nor false", name, found->dump()));
    value = found->get<bool>();
  }
  /// A number of seconds, or "5us".
  void seconds(char const* name, double& value) {
    auto const* const found = find(name);
    if (found == nullptr) return;
    if (!found->is_string()) return number(name, value);
    value = parse_seconds(found->get<std::string>());
  }
  void link(char const* name, LinkSpeed& link) {
    auto const* const found = find(name);
    if (found == nullptr) return;
    Members members(*found, fmt::format("{}: {}", where_, name));
    members.seconds("latency", link.latency_s);
    members.number("bandwidth", link.bytes_per_s);
    members.seconds("gap", link.gap_s);
    members.finish();
  }
  [[nodiscard]] std::string text(char const* name) {
    auto const* const found = find(name);
    if (found == nullptr) return {};
    if (!found->is_string()) refuse(fmt::format("\"{}\" is {}, no text", name, found->dump()));
    return found->get<std::string>();
  }
  void finish() {
    for (auto const& [name, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
        refuse(fmt::format("there is no \"{}\"; there are {}", name, fmt::join(known_, ", ")));
      }
    }
  }

 private:
  [[nodiscard]] json const* find(char const* name) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.emplace_back(name);
    auto const found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", where_, why));
  }

  json const& object_;
  std::string where_;
  std::vector<std::string> known_;
};

Topology preset(std::string const& name, std::string const& where) {
  for (auto const& each : presets()) {
    if (each.name == name) return each.topology;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}there is no preset \"{}\"; there are {}", where, name, fmt::join(preset_names(), ", ")));
}

Topology parse(json const& object, std::string const& path) {
  Members members(object, path);
  auto const start = members.text("preset");
  auto topology = start.empty() ? Topology{} : preset(start, path + ": ");
  members.whole("ranks", topology.ranks);
  members.whole("ranks_per_host", topology.ranks_per_host);
  members.link("inside", topology.inside);
  members.link("between", topology.between);
  members.truth("shared_nic", topology.shared_nic);
  members.truth("rails", topology.rails);
  members.whole("hosts_per_leaf", topology.hosts_per_leaf);
  members.number("oversubscription", topology.oversubscription);
  members.seconds("spine_latency", topology.spine_latency_s);
  members.finish();
  return topology;
}

}  // namespace

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (auto const& each : presets()) names.push_back(each.name);
  return names;
}

sim::Topology read_topology(std::string const& name_or_path) {
  for (auto const& each : presets()) {
    if (each.name == name_or_path) return each.topology;
  }
  std::ifstream file(name_or_path);
  if (!file || std::filesystem::is_directory(name_or_path)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--topology: \"{}\" is neither a file nor one of {}",
                                                         name_or_path, fmt::join(preset_names(), ", ")));
  }
  try {
    return parse(json::parse(shallow_text(file, name_or_path)), name_or_path);
  } catch (json::exception const& error) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", name_or_path, error.what()));
  }
}

}  // namespace weft::simulate_tool
