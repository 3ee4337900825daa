#include "weft/cluster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "weft/error.hpp"

namespace weft {

namespace {

using Json = nlohmann::ordered_json;

/// 8 GPUs a host. Compute rates are what large bf16 matrix products reach (60 % of the data sheets' dense rates),
/// memory 80 % of the data sheets', and a host's link carries 88 % to 90 % of its gigabits as payload.
std::vector<Cluster> const& presets() {
  static std::vector<Cluster> const all = [] {
    Cluster a100{.name = "a100",
                 .ranks_per_host = 8,
                 .flops_per_s = 187e12,
                 .memory_bytes_per_s = 1.6e12,
                 .memory_bytes = 80'000'000'000,
                 .within = {250e9, 50e-6},
                 .between = {11e9, 50e-6},
                 .copy_bytes_per_s = 20e9};
    Cluster h100 = a100;
    h100.flops_per_s = 593e12;
    h100.memory_bytes_per_s = 3.35e12;
    Cluster h200 = h100;
    h200.memory_bytes_per_s = 4.8e12;
    h200.memory_bytes = 141'000'000'000;
    auto const with = [](Cluster cluster, char const* name, double between) {
      cluster.name = name;
      cluster.between.bytes_per_s = between;
      return cluster;
    };
    return std::vector<Cluster>{with(a100, "a100-100g", 11e9), with(a100, "a100-200g", 22e9),
                                with(a100, "a100-400g", 45e9), with(a100, "a100-800g", 90e9),
                                with(h100, "h100-400g", 45e9), with(h200, "h200-400g", 45e9)};
  }();
  return all;
}

class ClusterReader {
 public:
  explicit ClusterReader(std::string const& source) : source_(source) {}

  Cluster read(std::istream& in) {
    Json json;
    try {
      json = Json::parse(in);
    } catch (nlohmann::json::exception const& error) {
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: not a cluster in JSON: {}", source_, error.what()));
    }
    Cluster cluster;
    take(json, "",
         {{"name", [&](Json const& v) { cluster.name = text("name", v); }},
          {"ranks_per_host",
           [&](Json const& v) { cluster.ranks_per_host = static_cast<int>(whole("ranks_per_host", v)); }},
          {"flops_per_s", [&](Json const& v) { cluster.flops_per_s = number("flops_per_s", v); }},
          {"memory_bytes_per_s", [&](Json const& v) { cluster.memory_bytes_per_s = number("memory_bytes_per_s", v); }},
          {"memory_bytes",
           [&](Json const& v) { cluster.memory_bytes = static_cast<std::int64_t>(whole("memory_bytes", v)); }},
          {"within", [&](Json const& v) { cluster.within = link("within", v); }},
          {"between", [&](Json const& v) { cluster.between = link("between", v); }},
          {"copy_bytes_per_s", [&](Json const& v) { cluster.copy_bytes_per_s = number("copy_bytes_per_s", v); }},
          {"operator_s", [&](Json const& v) { cluster.operator_s = number("operator_s", v); }}});
    if (cluster.name.empty()) cluster.name = source_;
    refuse_missing(json);
    try {
      check_cluster(cluster);
    } catch (Error const& error) {
      throw Error(error.code(), fmt::format("{}: {}", source_, error.what()));
    }
    return cluster;
  }

 private:
  struct Key {
    char const* name;
    std::function<void(Json const&)> take;
  };

  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", source_, why));
  }

  void take(Json const& json, std::string const& within, std::vector<Key> const& keys) const {
    if (!json.is_object())
      refuse(within.empty() ? "not a JSON object" : fmt::format("\"{}\" is not an object", within));
    for (auto const& [name, value] : json.items()) {
      auto const key =
          std::find_if(keys.begin(), keys.end(), [&, wanted = name](Key const& k) { return wanted == k.name; });
      if (key == keys.end()) refuse(fmt::format("unknown key \"{}{}{}\"", within, within.empty() ? "" : ".", name));
      key->take(value);
    }
  }

  /// Refuses a cluster that lacks a figure for which no value would do for every cluster.
  void refuse_missing(Json const& json) const {
    std::vector<std::string> missing;
    for (char const* const key : {"flops_per_s", "memory_bytes_per_s"}) {
      if (!json.contains(key)) missing.emplace_back(key);
    }
    for (char const* const key : {"within", "between"}) {
      if (!json.contains(key) || !json[key].contains("bytes_per_s"))
        missing.push_back(fmt::format("{}.bytes_per_s", key));
    }
    if (missing.empty()) return;
    refuse(fmt::format("it does not say {}: docs/scheduler.md#clusters has a whole one", fmt::join(missing, ", ")));
  }

  std::string text(char const* key, Json const& value) const {
    if (!value.is_string()) refuse(fmt::format("\"{}\" is not a string", key));
    return value.get<std::string>();
  }
  double number(char const* key, Json const& value) const {
    if (!value.is_number()) refuse(fmt::format("\"{}\" is not a number", key));
    return value.get<double>();
  }
  double whole(char const* key, Json const& value) const {
    double const read = number(key, value);
    double const most = std::string_view(key) == "memory_bytes" ? 4e18 : 1e6;
    if (read != std::floor(read) || std::abs(read) > most) refuse(fmt::format("\"{}\" of {}", key, value.dump()));
    return read;
  }
  LinkSpeed link(char const* key, Json const& value) const {
    LinkSpeed link;
    take(value, key,
         {{"bytes_per_s", [&](Json const& v) { link.bytes_per_s = number("bytes_per_s", v); }},
          {"step_s", [&](Json const& v) { link.step_s = number("step_s", v); }}});
    return link;
  }

  std::string const& source_;
};

}  // namespace

Cluster cluster_named(std::string const& name) {
  for (auto const& cluster : presets()) {
    if (cluster.name == name) return cluster;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("no cluster is named \"{}\"; there are {}", name, fmt::join(cluster_names(), ", ")));
}

std::vector<std::string> cluster_names() {
  std::vector<std::string> names;
  for (auto const& cluster : presets()) names.push_back(cluster.name);
  return names;
}

void check_cluster(Cluster const& cluster) {
  auto const check = [&](char const* member, double value, bool may_be_zero) {
    if (std::isfinite(value) && (may_be_zero ? value >= 0 : value > 0)) return;
    throw Error(ErrorCode::invalid_argument, fmt::format("cluster {}: {} of {}: {} is needed", cluster.name, member,
                                                         value, may_be_zero ? "0 or more" : "a number above 0"));
  };
  check("ranks_per_host", cluster.ranks_per_host, false);
  check("flops_per_s", cluster.flops_per_s, false);
  check("memory_bytes_per_s", cluster.memory_bytes_per_s, false);
  check("memory_bytes", static_cast<double>(cluster.memory_bytes), true);
  check("within.bytes_per_s", cluster.within.bytes_per_s, false);
  check("within.step_s", cluster.within.step_s, true);
  check("between.bytes_per_s", cluster.between.bytes_per_s, false);
  check("between.step_s", cluster.between.step_s, true);
  check("copy_bytes_per_s", cluster.copy_bytes_per_s, true);
  check("operator_s", cluster.operator_s, true);
}

Cluster read_cluster(std::istream& in, std::string const& source) {
  return ClusterReader(source).read(in);
}

void write_cluster(Cluster const& cluster, std::ostream& out) {
  auto const link = [](LinkSpeed const& speed) {
    return Json{{"bytes_per_s", speed.bytes_per_s}, {"step_s", speed.step_s}};
  };
  Json const json = {{"name", cluster.name},
                     {"ranks_per_host", cluster.ranks_per_host},
                     {"flops_per_s", cluster.flops_per_s},
                     {"memory_bytes_per_s", cluster.memory_bytes_per_s},
                     {"memory_bytes", cluster.memory_bytes},
                     {"within", link(cluster.within)},
                     {"between", link(cluster.between)},
                     {"copy_bytes_per_s", cluster.copy_bytes_per_s},
                     {"operator_s", cluster.operator_s}};
  out << json.dump(2) << "\n";
}

}  // namespace weft
