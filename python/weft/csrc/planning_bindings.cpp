#include "planning_bindings.hpp"

#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "aftermath.hpp"
#include "weft/cluster.hpp"
#include "weft/cost_model.hpp"
#include "weft/error.hpp"
#include "weft/import_kineto.hpp"
#include "weft/memory_planner.hpp"
#include "weft/op_graph_json.hpp"
#include "weft/recompute.hpp"
#include "weft/schedule.hpp"

namespace py = pybind11;

namespace weft::torch_backend {
namespace {

/// Without the interpreter's lock, errors as torch's.
template <typename Body>
auto planned(Body&& body) {
  py::gil_scoped_release const released;
  try {
    return body();
  } catch (Error const& error) {
    throw_as_torch(error);
  }
}

OpGraph graph_of(std::string const& json) {
  std::istringstream in(json);
  return read_graph(in, "weft.graph");
}

CostModel model_of(std::string const& cluster) {
  if (!cluster.starts_with("{")) return CostModel(cluster_named(cluster));
  std::istringstream in(cluster);
  return CostModel(read_cluster(in, "cluster"));
}

std::string json_of(Cluster const& cluster) {
  std::ostringstream out;
  write_cluster(cluster, out);
  return out.str();
}

SchedulePolicy policy_of(std::string const& name) {
  for (int i = 0; i < kSchedulePolicies; ++i) {
    if (to_string(static_cast<SchedulePolicy>(i)) == name) return static_cast<SchedulePolicy>(i);
  }
  throw Error(ErrorCode::invalid_argument, "there is no scheduling policy " + name);
}

py::dict schedule(std::string const& graph, std::string const& cluster, std::string const& policy,
                  std::optional<std::int64_t> capacity, double contention, int time_limit_ms) {
  auto const plan = planned([&] {
    ScheduleOptions options;
    options.policy = policy_of(policy);
    options.capacity = capacity;
    options.contention = contention;
    options.time_limit = std::chrono::milliseconds(time_limit_ms);
    return plan_schedule(graph_of(graph), model_of(cluster), options);
  });
  py::list launches;
  for (auto const& launch : plan.launches) {
    launches.append(py::make_tuple(launch.ops, std::string(to_string(launch.resource)), launch.start_s, launch.end_s));
  }
  py::dict fields;
  fields["launches"] = launches;
  fields["makespan_s"] = plan.makespan_s;
  fields["exposed_s"] = plan.exposed_s;
  fields["bound_s"] = plan.bound.within_memory_s();
  fields["peak_bytes"] = plan.peak_bytes;
  fields["resident_bytes"] = plan.resident_bytes;
  fields["capacity"] = plan.capacity;
  return fields;
}

OrderPolicy order_of(std::string const& name) {
  for (int i = 0; i < kOrderPolicies; ++i) {
    if (to_string(static_cast<OrderPolicy>(i)) == name) return static_cast<OrderPolicy>(i);
  }
  throw Error(ErrorCode::invalid_argument, "there is no order " + name);
}

py::dict tensors(std::string const& graph, std::string const& order, std::int64_t alignment, int time_limit_ms) {
  auto const plan = planned([&] {
    TensorPlanOptions options;
    options.policy = order_of(order);
    options.alignment = alignment;
    options.time_limit = std::chrono::milliseconds(time_limit_ms);
    return plan_tensors(graph_of(graph), options);
  });
  py::list buffers;
  for (std::size_t i = 0; i < plan.tensors.buffers.size(); ++i) {
    auto const& buffer = plan.tensors.buffers[i];
    buffers.append(
        py::make_tuple(buffer.name, buffer.bytes, plan.memory.offsets[i], buffer.life.begin, buffer.life.end));
  }
  py::dict fields;
  fields["order"] = plan.order;
  fields["live"] = plan.live;
  fields["live_bytes"] = plan.live_bytes;
  fields["bound_bytes"] = plan.bound_bytes;
  fields["resident_bytes"] = plan.resident_bytes;
  fields["buffers"] = buffers;
  fields["bytes"] = plan.memory.bytes;
  return fields;
}

py::dict recompute(std::string const& graph, std::string const& cluster, std::int64_t budget, int time_limit_ms) {
  auto const plan = planned([&] {
    RecomputeOptions options;
    options.budget = budget;
    options.time_limit = std::chrono::milliseconds(time_limit_ms);
    return plan_recompute(graph_of(graph), model_of(cluster), options);
  });
  py::dict fields;
  fields["again"] = plan.again;
  fields["seconds"] = plan.seconds;
  fields["peak_bytes"] = plan.peak_bytes;
  fields["peak_before"] = plan.peak_before;
  return fields;
}

/// What a recorded step did, in the order of starts: (name, kind, seconds, stream), and the graph in JSON.
py::tuple trace(std::string const& path) {
  std::string json;
  auto const step = planned([&] {
    std::ifstream in(path);
    if (!in) throw Error(ErrorCode::invalid_argument, path + ": cannot be read");
    auto imported = import_kineto(in, path);
    std::ostringstream out;
    write_graph(imported.graph, out);
    json = out.str();
    return imported;
  });
  py::list operators;
  for (std::size_t i = 0; i < step.graph.ops.size(); ++i) {
    auto const& op = step.graph.ops[i];
    operators.append(py::make_tuple(op.name, std::string(to_string(op.kind)), op.seconds.value_or(0), step.starts[i],
                                    step.streams[static_cast<std::size_t>(step.lanes[i])]));
  }
  return py::make_tuple(operators, json);
}

}  // namespace

void bind_planning(py::module_& module) {
  module.def("plan_schedule", &schedule, py::arg("graph"), py::arg("cluster"), py::arg("policy") = "weft",
             py::arg("capacity") = py::none(), py::arg("contention") = 0.0, py::arg("time_limit_ms") = 60'000);
  module.def("plan_tensors", &tensors, py::arg("graph"), py::arg("order") = "weft", py::arg("alignment") = 256,
             py::arg("time_limit_ms") = 2'000);
  module.def("plan_recompute", &recompute, py::arg("graph"), py::arg("cluster"), py::arg("budget"),
             py::arg("time_limit_ms") = 20'000);
  module.def("import_kineto", &trace, py::arg("path"));
  module.def(
      "cluster_json",
      [](std::string const& cluster) { return planned([&] { return json_of(model_of(cluster).cluster()); }); },
      py::arg("cluster"), "A named cluster, or one in JSON, checked: in JSON.");
}

}  // namespace weft::torch_backend
