#pragma once

#include "weft/transformer_graph.hpp"

namespace weft {

/// How ranks are numbered: tensor + tensors x (shard + shards x (replica + replicas x stage)).
struct Mesh {
  int tensors = 1;
  int shards = 1;    ///< ranks that hold different pieces of what a strategy shards
  int replicas = 1;  ///< ranks that hold the same
  int stages = 1;

  [[nodiscard]] int ranks() const { return tensors * shards * replicas * stages; }
};

[[nodiscard]] Mesh mesh_of(TransformerPlan const& plan);

/// The groups that communicate; kNone where one has a single rank.
struct MeshGroups {
  GroupId tensor = kNone;
  GroupId shard = kNone;
  GroupId replica = kNone;
  GroupId stage = kNone;
  GroupId norm = kNone;  ///< all ranks that have different gradients
  GroupId ends = kNone;  ///< the first and the last stage, where both hold the embedding's table
};

[[nodiscard]] MeshGroups add_groups(OpGraph& graph, Mesh const& mesh);

}  // namespace weft
