#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "weft/cost_model.hpp"
#include "weft/op_graph.hpp"

namespace weft::test {

/// A machine on which costs are easy to see: 1 flop is 1 s, 1 byte sent by a ring's hop is 1 s, a step costs `step_s`.
inline Cluster unit_cluster(double step_s = 0) {
  return {.name = "unit",
          .ranks_per_host = 1,
          .flops_per_s = 1,
          .memory_bytes_per_s = 1,
          .within = {1, step_s},
          .between = {1, step_s}};
}

struct RandomGraphShape {
  std::size_t ops = 12;
  double collectives = 0.3;  ///< share of operators
  double kept = 0.1;
  double aliases = 0.15;
  double inputs = 0.3;  ///< tensors there from the beginning, per operator
};

/// Operators that read tensors of earlier ones, by chance; the same for the same `random`.
inline OpGraph random_graph(std::mt19937& random, RandomGraphShape const& shape = {}) {
  OpGraph graph{.name = "random"};
  auto const chance = [&](double p) { return std::uniform_real_distribution<double>(0, 1)(random) < p; };
  auto const up_to = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  GroupId const other = graph.add(OpGroup{.name = "other", .sets = {{0, 2}, {1, 3}}});
  std::vector<TensorId> made;
  for (std::size_t i = 0; i < shape.ops; ++i) {
    std::string const name = std::to_string(i);
    if (chance(shape.inputs)) {
      made.push_back(
          graph.add(OpTensor{.name = "in" + name, .bytes = static_cast<std::int64_t>(up_to(20)), .kept = chance(0.5)}));
    }
    OpNode op{.name = "op" + name};
    for (std::size_t reads = up_to(3) + (made.empty() ? 0 : 1); reads > 0 && !made.empty(); --reads) {
      // Mostly of what was made lately.
      std::size_t const back = std::min(made.size(), std::size_t{1} + up_to(6));
      TensorId const tensor = made[made.size() - back];
      if (std::find(op.reads.begin(), op.reads.end(), tensor) == op.reads.end()) op.reads.push_back(tensor);
    }
    if (chance(shape.collectives)) {
      op.kind = OpKind::collective;
      op.collective = {chance(0.5) ? CollectiveKind::all_gather : CollectiveKind::reduce_scatter,
                       static_cast<std::int64_t>(up_to(12)), chance(0.8) ? world : other};
    } else {
      op.kind = chance(0.1) ? OpKind::copy : OpKind::compute;
      op.flops = static_cast<double>(up_to(8));
      op.memory_bytes = static_cast<double>(up_to(3));
    }
    for (std::size_t writes = 1 + up_to(2); writes > 0; --writes) {
      OpTensor tensor{.name = "t" + name + "_" + std::to_string(writes), .bytes = static_cast<std::int64_t>(up_to(30))};
      tensor.kept = chance(shape.kept);
      if (!op.reads.empty() && chance(shape.aliases)) {
        tensor.alias_of = op.reads.front();
        tensor.bytes = std::min(tensor.bytes, graph.tensors[static_cast<std::size_t>(tensor.alias_of)].bytes);
      } else if (!op.reads.empty() && chance(0.2)) {
        tensor.in_place_of = op.reads.back();
      }
      TensorId const id = graph.add(tensor);
      op.writes.push_back(id);
      made.push_back(id);
    }
    if (i > 0 && chance(0.1)) op.after.push_back(static_cast<OpId>(up_to(i)));
    graph.add(op);
  }
  return graph;
}

}  // namespace weft::test
