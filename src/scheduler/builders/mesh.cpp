#include "scheduler/builders/mesh.hpp"

#include "scheduler/graph/strided_group.hpp"

namespace weft {

namespace {

GroupId add_strided(OpGraph& graph, char const* name, Mesh const& mesh, int size, int stride) {
  if (size == 1) return kNone;
  return graph.add(strided_group(name, {.ranks = mesh.ranks(), .size = size, .stride = stride}));
}

/// One set for each replica: its ranks in all stages.
GroupId add_norm(OpGraph& graph, Mesh const& mesh) {
  int const neighbours = mesh.tensors * mesh.shards;
  if (neighbours * mesh.stages == 1) return kNone;
  OpGroup group{.name = "norm"};
  for (int replica = 0; replica < mesh.replicas; ++replica) {
    auto& set = group.sets.emplace_back();
    for (int stage = 0; stage < mesh.stages; ++stage) {
      int const first = neighbours * (replica + mesh.replicas * stage);
      for (int i = 0; i < neighbours; ++i) set.push_back(first + i);
    }
  }
  return graph.add(std::move(group));
}

GroupId add_ends(OpGraph& graph, Mesh const& mesh) {
  if (mesh.stages == 1) return kNone;
  OpGroup group{.name = "ends"};
  int const of_stage = mesh.ranks() / mesh.stages;
  for (int i = 0; i < of_stage; ++i) group.sets.push_back({i, i + (mesh.stages - 1) * of_stage});
  return graph.add(std::move(group));
}

}  // namespace

Mesh mesh_of(TransformerPlan const& plan) {
  Mesh mesh{.tensors = plan.tensor_ranks, .stages = plan.pipeline_stages};
  switch (plan.strategy) {
    case TrainingStrategy::ddp: mesh.replicas = plan.data_ranks; break;
    case TrainingStrategy::hsdp:
      mesh.shards = plan.shard_ranks;
      mesh.replicas = plan.data_ranks / plan.shard_ranks;
      break;
    default: mesh.shards = plan.data_ranks;
  }
  return mesh;
}

MeshGroups add_groups(OpGraph& graph, Mesh const& mesh) {
  int const neighbours = mesh.tensors * mesh.shards;
  return {.tensor = add_strided(graph, "tensor", mesh, mesh.tensors, 1),
          .shard = add_strided(graph, "shard", mesh, mesh.shards, mesh.tensors),
          .replica = add_strided(graph, "replica", mesh, mesh.replicas, neighbours),
          .stage = add_strided(graph, "stage", mesh, mesh.stages, neighbours * mesh.replicas),
          .norm = add_norm(graph, mesh),
          .ends = add_ends(graph, mesh)};
}

}  // namespace weft
