#include "weft_schedule/plan_file.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

#include "weft/memory_plan.hpp"
#include "weft/memory_planner.hpp"

namespace weft::schedule_tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kAlignment = 256;  ///< of offsets: what GPUs' memory operations like best
constexpr double kGoodEnough = 1.001;     ///< times the peak: not worth a longer search
constexpr std::chrono::milliseconds kPlacingTime{2'000};

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

/// Where tensors lie while the schedule runs.
Json memory_json(OpGraph const& graph, Schedule const& schedule) {
  TensorBuffers const tensors = tensor_buffers(graph, schedule, kAlignment);
  auto const enough = static_cast<std::int64_t>(static_cast<double>(schedule.peak_bytes) * kGoodEnough);
  MemoryPlan const placed = plan_memory(tensors.buffers, {.capacity = enough, .time_limit = kPlacingTime});
  Json buffers = Json::array();
  for (std::size_t i = 0; i < tensors.buffers.size(); ++i) {
    PlannedBuffer const& buffer = tensors.buffers[i];
    buffers.push_back({{"tensor", buffer.name}, {"bytes", buffer.bytes}, {"offset", placed.offsets[i]}});
  }
  return {{"bytes", placed.bytes}, {"alignment", kAlignment}, {"buffers", std::move(buffers)}};
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
            {"launches_s", schedule.bound.launches_s},
            {"memory_s", schedule.bound.memory_s}}},
          {"launches", std::move(launches)},
          {"memory", memory_json(graph, schedule)}};
}

}  // namespace weft::schedule_tool
