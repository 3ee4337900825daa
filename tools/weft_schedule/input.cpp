#include "weft_schedule/input.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "weft/error.hpp"
#include "weft/import_chakra.hpp"
#include "weft/import_hlo.hpp"
#include "weft/import_kineto.hpp"
#include "weft/op_graph_json.hpp"

namespace weft::schedule_tool {

namespace {

constexpr std::size_t kLookedAt = std::size_t{1} << 16;

[[noreturn]] void refuse(std::string const& why) {
  throw Error(ErrorCode::invalid_argument, why);
}

std::ifstream open(std::string const& path) {
  std::ifstream file(path);
  if (!file) refuse(fmt::format("{}: cannot be opened for reading", path));
  return file;
}

bool ends_with(std::string const& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

enum class Form { graph, hlo, profile, execution };

/// By its suffix, or by what stands in its first lines: of torch's profiles "traceEvents", below a few about the
/// machine; of execution traces a schema that says whose it is.
Form form_of(std::string const& path, std::istream& file) {
  if (ends_with(path, ".hlo") || ends_with(path, ".txt")) return Form::hlo;
  std::string begin(kLookedAt, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  file.clear();
  file.seekg(0);
  if (begin.find("\"weft_graph\"") != std::string::npos) return Form::graph;
  if (begin.find("\"traceEvents\"") != std::string::npos) return Form::profile;
  if (begin.find("-chakra.") != std::string::npos) return Form::execution;
  return Form::graph;
}

/// What an importer made, and what it has to say.
template <typename Imported>
OpGraph told(Imported imported) {
  fmt::print(stderr, "{}", to_string(imported.report));
  return std::move(imported.graph);
}

OpGraph read_file(std::string const& path) {
  std::ifstream file = open(path);
  switch (form_of(path, file)) {
    case Form::hlo: return told(import_hlo(file, path));
    case Form::profile: return told(import_kineto(file, path));
    case Form::execution: return told(import_chakra(file, path));
    case Form::graph: break;
  }
  return read_graph(file, path);
}

/// Plans name operators: those without a name, or with another's, get one as in the JSON form.
OpGraph with_names(OpGraph graph) {
  std::set<std::string_view> names;
  for (auto const& op : graph.ops) {
    if (op.name.empty() || !names.insert(op.name).second) {
      std::stringstream text;
      write_graph(graph, text);
      return read_graph(text, graph.name);
    }
  }
  return graph;
}

OpGraph make_graph(Settings const& settings, TransformerPlan const& plan) {
  if (settings.model.empty()) return with_names(read_file(settings.graph));
  TransformerShape shape = transformer_preset(settings.model);
  for (auto const& change : settings.shape_changes) change(shape);
  return with_names(transformer_graph(shape, plan));
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

void apply(Change const& change, Settings const& settings, Case& planned, TransformerPlan& plan) {
  Cluster& cluster = planned.cluster;
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
  TransformerPlan plan = settings.plan;
  for (auto const& change : changes) apply(change, settings, planned, plan);
  check_cluster(planned.cluster);
  planned.graph = make_graph(settings, plan);
  return planned;
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
