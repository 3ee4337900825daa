#pragma once

#include <string>
#include <vector>

#include "weft/op_graph.hpp"

namespace weft {

/// Adds operators and tensors to a graph, each named with the micro-batch and the layer it belongs to. An operator
/// costs the bytes of the tensors that it reads and writes.
class StepGraph {
 public:
  explicit StepGraph(std::string name) : graph_{.name = std::move(name)} {}

  /// The micro-batch of what is added from now on; kNone: none, and names go without one.
  void set_micro_batch(int micro_batch) { micro_batch_ = micro_batch; }
  void set_layer(int layer) { layer_ = layer; }

  TensorId tensor(std::string const& name, std::int64_t bytes);
  /// A tensor that is there from the beginning and still needed when the step has ended.
  TensorId resident(std::string const& name, std::int64_t bytes);
  /// A tensor in the memory of another one.
  TensorId inside(std::string const& name, std::int64_t bytes, TensorId of);

  OpId compute(std::string const& name, double flops, std::vector<TensorId> reads, std::vector<TensorId> writes);
  /// A collective's bytes are those that it reads, or those that it writes where these are more.
  OpId collective(std::string const& name, CollectiveKind kind, GroupId group, std::vector<TensorId> reads,
                  std::vector<TensorId> writes);
  /// The result lies in its argument's memory; where there is no group it is the argument itself.
  TensorId all_reduce(std::string const& name, GroupId group, TensorId of);

  [[nodiscard]] std::int64_t bytes_of(std::vector<TensorId> const& tensors) const;
  [[nodiscard]] OpGraph& graph() { return graph_; }
  [[nodiscard]] OpId next_op() const { return static_cast<OpId>(graph_.ops.size()); }
  /// The first of the operators from `begin` that reads a tensor.
  [[nodiscard]] OpId first_reader(TensorId of, OpId begin) const;
  /// The last of all operators that writes it.
  [[nodiscard]] OpId writer(TensorId of) const;
  [[nodiscard]] OpNode& op(OpId id) { return graph_.ops[static_cast<std::size_t>(id)]; }
  [[nodiscard]] OpTensor& tensor(TensorId id) { return graph_.tensors[static_cast<std::size_t>(id)]; }

 private:
  [[nodiscard]] std::string named(std::string const& name) const;
  OpId add(OpNode op);

  OpGraph graph_;
  int micro_batch_ = kNone;
  int layer_ = kNone;
};

}  // namespace weft
