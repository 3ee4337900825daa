#include "scheduler/builders/step_graph.hpp"

#include <algorithm>
#include <utility>

namespace weft {

std::string StepGraph::named(std::string const& name) const {
  return micro_batch_ == kNone ? name : name + ".m" + std::to_string(micro_batch_);
}

TensorId StepGraph::tensor(std::string const& name, std::int64_t bytes) {
  return graph_.add(OpTensor{.name = named(name), .bytes = bytes});
}

TensorId StepGraph::resident(std::string const& name, std::int64_t bytes) {
  return graph_.add(OpTensor{.name = named(name), .bytes = bytes, .kept = true});
}

TensorId StepGraph::inside(std::string const& name, std::int64_t bytes, TensorId of) {
  return graph_.add(OpTensor{.name = named(name), .bytes = bytes, .alias_of = of});
}

std::int64_t StepGraph::bytes_of(std::vector<TensorId> const& tensors) const {
  std::int64_t bytes = 0;
  for (TensorId const id : tensors) bytes += graph_.tensors[static_cast<std::size_t>(id)].bytes;
  return bytes;
}

OpId StepGraph::first_reader(TensorId of, OpId begin) const {
  for (OpId op = begin; op < next_op(); ++op) {
    auto const& reads = graph_.ops[static_cast<std::size_t>(op)].reads;
    if (std::find(reads.begin(), reads.end(), of) != reads.end()) return op;
  }
  return kNone;
}

OpId StepGraph::writer(TensorId of) const {
  for (OpId op = next_op() - 1; op >= 0; --op) {
    auto const& writes = graph_.ops[static_cast<std::size_t>(op)].writes;
    if (std::find(writes.begin(), writes.end(), of) != writes.end()) return op;
  }
  return kNone;
}

OpId StepGraph::add(OpNode op) {
  op.name = named(op.name);
  op.layer = layer_;
  return graph_.add(std::move(op));
}

OpId StepGraph::compute(std::string const& name, double flops, std::vector<TensorId> reads,
                        std::vector<TensorId> writes) {
  auto const bytes = static_cast<double>(bytes_of(reads) + bytes_of(writes));
  return add(
      {.name = name, .flops = flops, .memory_bytes = bytes, .reads = std::move(reads), .writes = std::move(writes)});
}

OpId StepGraph::collective(std::string const& name, CollectiveKind kind, GroupId group, std::vector<TensorId> reads,
                           std::vector<TensorId> writes) {
  auto const bytes = std::max(bytes_of(reads), bytes_of(writes));
  return add({.name = name,
              .kind = OpKind::collective,
              .collective = {kind, bytes, group},
              .reads = std::move(reads),
              .writes = std::move(writes)});
}

TensorId StepGraph::all_reduce(std::string const& name, GroupId group, TensorId of) {
  if (group == kNone) return of;
  TensorId const reduced = inside(name, tensor(of).bytes, of);
  collective(name, CollectiveKind::all_reduce, group, {of}, {reduced});
  return reduced;
}

}  // namespace weft
