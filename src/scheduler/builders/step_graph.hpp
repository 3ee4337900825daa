#pragma once

#include <string>
#include <vector>

#include "weft/op_graph.hpp"

namespace weft {

/// Adds operators and tensors to a graph, each with the micro-batch's and the layer's number. Operators cost the bytes
/// of the tensors that they read and write.
class StepGraph {
 public:
  explicit StepGraph(std::string name) : graph_{.name = std::move(name)} {}

  /// Of what is added from now on. A micro-batch of kNone is none: names go without one.
  void set_micro_batch(int micro_batch) { micro_batch_ = micro_batch; }
  void set_layer(int layer) { layer_ = layer; }

  TensorId tensor(std::string const& name, std::int64_t bytes);
  /// There from the beginning, and needed when the step has ended.
  TensorId resident(std::string const& name, std::int64_t bytes);
  /// In the memory of another one.
  TensorId inside(std::string const& name, std::int64_t bytes, TensorId of);

  OpId compute(std::string const& name, double flops, std::vector<TensorId> reads, std::vector<TensorId> writes);
  /// Its bytes are those that it reads, or writes where they are more.
  OpId collective(std::string const& name, CollectiveKind kind, GroupId group, std::vector<TensorId> reads,
                  std::vector<TensorId> writes);
  /// What it returns lies where its argument was; the argument itself where there is no group.
  TensorId all_reduce(std::string const& name, GroupId group, TensorId of);

  [[nodiscard]] std::int64_t bytes_of(std::vector<TensorId> const& tensors) const;
  [[nodiscard]] OpGraph& graph() { return graph_; }
  [[nodiscard]] OpId next_op() const { return static_cast<OpId>(graph_.ops.size()); }
  /// The first of the operators from `begin` that reads a tensor.
  [[nodiscard]] OpId first_reader(TensorId of, OpId begin) const;
  /// The last of all that writes it.
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
