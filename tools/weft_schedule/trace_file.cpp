#include "weft_schedule/trace_file.hpp"

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

namespace weft::schedule_tool {

namespace {

using Json = nlohmann::ordered_json;

Json named(char const* what, int track, std::string const& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", 0}, {"tid", track}, {"args", {{"name", name}}}};
}

Json event(OpGraph const& graph, Launch const& launch) {
  auto const& first = graph.ops[static_cast<std::size_t>(launch.ops.front())];
  std::string name = first.name;
  if (launch.ops.size() > 1) name += " and " + std::to_string(launch.ops.size() - 1) + " more";
  Json args = {{"live_bytes", launch.live_bytes}};
  if (first.kind == OpKind::collective) {
    std::int64_t bytes = 0;
    for (OpId const op : launch.ops) bytes += graph.ops[static_cast<std::size_t>(op)].collective.bytes;
    args["bytes"] = bytes;
  }
  return {{"name", name},
          {"cat", to_string(first.kind)},
          {"ph", "X"},
          {"pid", 0},
          {"tid", static_cast<int>(launch.resource)},
          {"ts", launch.start_s * 1e6},
          {"dur", (launch.end_s - launch.start_s) * 1e6},
          {"args", std::move(args)}};
}

}  // namespace

void write_timeline(OpGraph const& graph, Schedule const& schedule, std::ostream& out) {
  out << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
      << named("process_name", 0, graph.name + ", " + schedule.policy).dump();
  for (int i = 0; i < kResources; ++i) {
    out << ",\n" << named("thread_name", i, std::string(to_string(static_cast<Resource>(i)))).dump();
  }
  for (auto const& launch : schedule.launches) {
    Json const live = {{"name", "live bytes"},
                       {"ph", "C"},
                       {"pid", 0},
                       {"ts", launch.start_s * 1e6},
                       {"args", {{"bytes", launch.live_bytes}}}};
    out << ",\n" << event(graph, launch).dump() << ",\n" << live.dump();
  }
  out << "\n]}\n";
}

}  // namespace weft::schedule_tool
