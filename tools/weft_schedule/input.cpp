#include "weft_schedule/input.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "weft_schedule/refuse.hpp"

namespace weft::schedule_tool {

namespace {

std::ifstream open(std::string const& path) {
  if (std::filesystem::is_directory(path)) refuse(fmt::format("{}: is a directory", path));
  std::ifstream file(path);
  if (!file) refuse(fmt::format("{}: cannot be opened for reading", path));
  return file;
}

Cluster find_cluster(std::string const& given) {
  for (auto const& name : cluster_names()) {
    if (name == given) return cluster_named(name);
  }
  // What looks like no file is a name that was misspelled.
  if (given.find('.') == std::string::npos && access(given.c_str(), R_OK) != 0) return cluster_named(given);
  std::ifstream file = open(given);
  return read_cluster(file, given);
}

int whole(Change const& change, int old) {
  double const value = change.applied_to(old);
  if (value < 1 || value > 1e6 || value != std::floor(value)) {
    refuse(fmt::format("--what-if: {}={} makes {} of {}", change.key, change.text, value, old));
  }
  return static_cast<int>(value);
}

void apply(Change const& change, Settings const& settings, Case& planned) {
  Cluster& cluster = planned.cluster;
  TransformerPlan& plan = planned.plan;
  auto const to = [&](double& member) { member = change.applied_to(member); };
  if (change.key == "link") to(cluster.between.bytes_per_s);
  if (change.key == "within") to(cluster.within.bytes_per_s);
  if (change.key == "flops") to(cluster.flops_per_s);
  if (change.key == "bandwidth") to(cluster.memory_bytes_per_s);
  if (change.key == "contention") to(planned.contention);
  if (change.key == "latency") {
    to(cluster.within.step_s);
    to(cluster.between.step_s);
  }
  if (change.key == "memory") planned.memory = parse_memory(change.text);
  if (change.key == "ranks_per_host") cluster.ranks_per_host = whole(change, cluster.ranks_per_host);
  if (change.key == "ranks") {
    if (settings.model.empty()) {
      refuse("--what-if: ranks can be changed of a --model alone; a graph has been made for so many");
    }
    plan.data_ranks = whole(change, plan.data_ranks);
  }
}

}  // namespace

Case read_case(Settings const& settings, std::vector<Change> const& changes) {
  Case planned{.cluster = find_cluster(settings.cluster), .contention = settings.contention};
  if (!settings.memory.empty()) {
    planned.memory = parse_memory(settings.memory);
  } else if (planned.cluster.memory_bytes > 0) {
    planned.memory = {.bytes = planned.cluster.memory_bytes};
  } else {
    refuse(fmt::format("cluster {} does not say how much memory there is: --memory is needed", planned.cluster.name));
  }
  planned.plan = settings.plan;
  for (auto const& change : changes) apply(change, settings, planned);
  check_cluster(planned.cluster);
  planned.graph = graph_tool::read(settings, planned.plan);
  return planned;
}

std::optional<ImportedTrace> read_measured(Settings const& settings) {
  if (settings.measured.empty()) return std::nullopt;
  std::ifstream file = open(settings.measured);
  return import_kineto(file, settings.measured);
}

std::int64_t resident_bytes(OpGraph const& graph) {
  auto const memory = memory_of(graph);
  auto const writers = writers_of(graph);
  std::vector<std::int64_t> bytes(graph.tensors.size(), 0);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    auto const root = static_cast<std::size_t>(memory[i]);
    if (graph.tensors[i].kept && writers[root] == kNone) bytes[root] = graph.tensors[root].bytes;
  }
  std::int64_t total = 0;
  for (auto const each : bytes) total += each;
  return total;
}

}  // namespace weft::schedule_tool
