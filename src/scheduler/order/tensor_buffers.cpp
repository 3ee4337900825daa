#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/costless.hpp"
#include "scheduler/order/problem.hpp"
#include "weft/error.hpp"
#include "weft/memory_planner.hpp"

namespace weft {

namespace {

/// When operators begin and end, counted in places: what ends at a place is gone when what begins there begins.
struct Places {
  std::vector<std::int64_t> begin;  ///< by operator
  std::vector<std::int64_t> end;
  std::int64_t last = 0;  ///< the step's end
};

[[noreturn]] void refuse(OpGraph const& graph, std::string const& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("graph {}: {}", graph.name, what));
}

/// By operator: its places. `runs` holds each operator once.
std::vector<std::int64_t> places_in(OpGraph const& graph, std::vector<std::vector<OpId>> const& runs) {
  std::vector<std::int64_t> place(graph.ops.size(), kNone);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (OpId const op : runs[i]) {
      if (op < 0 || at(op) >= place.size()) refuse(graph, fmt::format("it has no operator {}, which is to run", op));
      if (place[at(op)] != kNone) refuse(graph, fmt::format("operator {} is to run twice", op));
      place[at(op)] = static_cast<std::int64_t>(i);
    }
  }
  auto const missing = std::find(place.begin(), place.end(), kNone);
  if (missing != place.end()) refuse(graph, fmt::format("operator {} is not to run", missing - place.begin()));
  return place;
}

TensorBuffers buffers_of(OpGraph const& graph, Places const& places, std::int64_t alignment) {
  Costless const costs;
  Problem const problem(graph, costs.model());
  TensorBuffers result;
  std::vector<std::int32_t> buffer_of(problem.storages().size(), kNone);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    auto const id = problem.storage_of(static_cast<TensorId>(i));
    Storage const& storage = problem.storages()[at(id)];
    bool const needed = storage.kept || !storage.users.empty();
    if (needed && buffer_of[at(id)] == kNone) {
      buffer_of[at(id)] = static_cast<std::int32_t>(result.buffers.size());
      PlannedBuffer buffer{.name = graph.tensors[i].name, .bytes = storage.bytes, .alignment = alignment};
      if (buffer.name.empty()) buffer.name = fmt::format("tensor{}", i);
      buffer.life.begin = storage.first == kNone ? 0 : places.begin[at(storage.first)];
      buffer.life.end = storage.kept ? places.last : 0;
      for (TaskId const user : storage.users) buffer.life.end = std::max(buffer.life.end, places.end[at(user)]);
      result.buffers.push_back(std::move(buffer));
    }
    result.buffer_of.push_back(buffer_of[at(id)]);
  }
  return result;
}

}  // namespace

// Nothing is merged in the problem above, so that its tasks are the graph's operators.

TensorBuffers tensor_buffers(OpGraph const& graph, std::vector<OpId> const& order, std::int64_t alignment) {
  std::vector<std::vector<OpId>> runs;
  for (OpId const op : order) runs.push_back({op});
  Places places{.begin = places_in(graph, runs), .end = {}, .last = static_cast<std::int64_t>(order.size())};
  for (auto const begin : places.begin) places.end.push_back(begin + 1);
  return buffers_of(graph, places, alignment);
}

TensorBuffers tensor_buffers(OpGraph const& graph, Schedule const& schedule, std::int64_t alignment) {
  auto const& launches = schedule.launches;
  std::vector<std::vector<OpId>> runs;
  for (auto const& launch : launches) runs.push_back(launch.ops);
  Places places{.begin = places_in(graph, runs), .end = {}, .last = static_cast<std::int64_t>(launches.size())};
  for (auto const begin : places.begin) {
    auto const mine = launches.begin() + begin;
    auto const next = std::partition_point(mine + 1, launches.end(),
                                           [&](Launch const& launch) { return launch.start_s < mine->end_s; });
    places.end.push_back(next - launches.begin());
  }
  return buffers_of(graph, places, alignment);
}

}  // namespace weft
