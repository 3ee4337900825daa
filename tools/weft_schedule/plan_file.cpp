#include "weft_schedule/plan_file.hpp"

#include <array>
#include <sstream>
#include <string>

namespace weft::schedule_tool {

namespace {

using Json = nlohmann::ordered_json;

Json by_resource(std::array<double, kResources> const& seconds) {
  Json json;
  for (int i = 0; i < kResources; ++i) {
    json[std::string(to_string(static_cast<Resource>(i)))] = seconds[static_cast<std::size_t>(i)];
  }
  return json;
}

Json launch_json(OpGraph const& graph, Launch const& launch) {
  Json ops = Json::array();
  for (OpId const op : launch.ops) ops.push_back(graph.ops[static_cast<std::size_t>(op)].name);
  return {{"ops", std::move(ops)},
          {"resource", to_string(launch.resource)},
          {"start_s", launch.start_s},
          {"end_s", launch.end_s},
          {"live_bytes", launch.live_bytes}};
}

}  // namespace

Json plan_json(OpGraph const& graph, Cluster const& cluster, Schedule const& schedule) {
  std::stringstream machines;
  write_cluster(cluster, machines);
  Json launches = Json::array();
  for (auto const& launch : schedule.launches) launches.push_back(launch_json(graph, launch));
  return {{"weft_plan", 1},
          {"graph", graph.name},
          {"cluster", Json::parse(machines)},
          {"policy", schedule.policy},
          {"contention", schedule.contention},
          {"capacity", schedule.capacity},
          {"makespan_s", schedule.makespan_s},
          {"peak_bytes", schedule.peak_bytes},
          {"resident_bytes", schedule.resident_bytes},
          {"lower_bound",
           {{"best_s", schedule.bound.best_s()},
            {"critical_path_s", schedule.bound.critical_path_s},
            {"resource_s", by_resource(schedule.bound.resource_s)},
            {"contention_s", schedule.bound.contention_s},
            {"memory_s", schedule.bound.memory_s}}},
          {"launches", std::move(launches)}};
}

}  // namespace weft::schedule_tool
