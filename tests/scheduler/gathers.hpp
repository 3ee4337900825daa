#pragma once

#include <cstdint>
#include <string>

#include "weft/op_graph.hpp"

namespace weft::test {

/// Weights that are gathered one after another and used one after another: without merging, every gather costs a step.
inline OpGraph gathers(int layers, std::int64_t bytes, double flops) {
  OpGraph graph{.name = "gathers"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  TensorId activation = graph.add(OpTensor{.name = "x", .bytes = 1});
  for (int layer = 0; layer < layers; ++layer) {
    std::string const name = std::to_string(layer);
    TensorId const shard = graph.add(OpTensor{.name = "s" + name, .bytes = bytes / 2, .kept = true});
    TensorId const weight = graph.add(OpTensor{.name = "w" + name, .bytes = bytes});
    TensorId const next = graph.add(OpTensor{.name = "x" + name, .bytes = 1});
    graph.add(OpNode{.name = "gather" + name,
                     .kind = OpKind::collective,
                     .collective = {CollectiveKind::all_gather, bytes, world},
                     .reads = {shard},
                     .writes = {weight}});
    graph.add(OpNode{.name = "use" + name, .flops = flops, .reads = {activation, weight}, .writes = {next}});
    activation = next;
  }
  return graph;
}

}  // namespace weft::test
