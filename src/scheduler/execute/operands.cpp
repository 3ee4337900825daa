#include "scheduler/execute/operands.hpp"

#include <cstring>

#include "scheduler/graph/at.hpp"
#include "weft/group.hpp"
#include "weft/memory.hpp"

namespace weft {

namespace {

constexpr std::size_t kLine = 64;

/// Elements, rounded up to whole cache lines.
std::size_t padded(std::size_t count, DataType dtype) {
  std::size_t const unit = kLine / size_of(dtype);
  return (count + unit - 1) / unit * unit;
}

/// Whether one call can send both: where it does the same to each element, wherever that lies.
bool joins(OpBinding const& a, OpBinding const& b, CollectiveKind kind) {
  if (a.dtype != b.dtype) return false;
  return (kind == CollectiveKind::all_reduce && a.op == b.op) ||
         (kind == CollectiveKind::broadcast && a.root == b.root);
}

}  // namespace

Operands::Operands(OpGraph const& graph, std::span<OpBinding const> bindings, std::span<Communicator* const> groups,
                   Schedule const& plan)
    : views_(graph.ops.size()), calls_(plan.launches.size()) {
  MemoryScope const scope(MemoryKind::gradients);
  for (std::size_t i = 0; i < plan.launches.size(); ++i) {
    auto const& ops = plan.launches[i].ops;
    OpNode const& first = graph.ops[at(ops.front())];
    if (first.kind != OpKind::collective) continue;
    for (std::size_t begin = 0, end = 0; begin < ops.size(); begin = end) {
      auto const& binding = bindings[at(ops[begin])];
      for (end = begin + 1; end < ops.size(); ++end) {
        if (!joins(binding, bindings[at(ops[end])], first.collective.kind)) break;
      }
      BufferView const whole =
          lay_out(std::span(ops).subspan(begin, end - begin), bindings, *groups[at(first.collective.group)]);
      if (whole.count > 0) calls_[i].push_back({first.collective.kind, whole, binding.op, binding.root});
    }
  }
}

/// Allocates one piece of memory, in which each operator's elements begin on a cache line.
BufferView Operands::lay_out(std::span<OpId const> ops, std::span<OpBinding const> bindings, Communicator& group) {
  DataType const dtype = bindings[at(ops.front())].dtype;
  std::size_t total = 0;
  for (OpId const op : ops) total += padded(bindings[at(op)].count, dtype);
  if (total == 0) return {nullptr, 0, dtype};
  try {
    buffers_.push_back(group.allocate(total, dtype));
  } catch (Error const& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    if (!shortage_) shortage_ = error;
    return {nullptr, 0, dtype};
  }
  BufferView const all = buffers_.back().view();
  std::size_t offset = 0;
  std::size_t end = 0;
  for (OpId const op : ops) {
    views_[at(op)] = all.slice(offset, bindings[at(op)].count);
    end = offset + bindings[at(op)].count;
    offset += padded(bindings[at(op)].count, dtype);
  }
  return all.slice(0, end);
}

void Operands::copy_from(Operands const& other) const {
  for (std::size_t op = 0; op < views_.size(); ++op) {
    if (views_[op].count > 0) std::memcpy(views_[op].data, other.views_[op].data, views_[op].bytes());
  }
}

BufferView part_of(BufferView const& whole, Communicator const& group) {
  std::size_t const count = whole.count / static_cast<std::size_t>(group.size());
  return whole.slice(static_cast<std::size_t>(group.rank()) * count, count);
}

namespace {

Work send_one(Communicator& group, PlanCall const& call, CollectiveOptions const& on) {
  switch (call.kind) {
    case CollectiveKind::all_reduce: return group.all_reduce(call.whole, call.whole, call.op, on);
    case CollectiveKind::reduce_scatter:
      return group.reduce_scatter(call.whole, part_of(call.whole, group), call.op, on);
    case CollectiveKind::all_gather: return group.all_gather(part_of(call.whole, group), call.whole, on);
    case CollectiveKind::broadcast: return group.broadcast(call.whole, call.root, on);
    case CollectiveKind::all_to_all: return group.all_to_all(call.whole, call.whole, on);
    case CollectiveKind::permute: break;  // refused when the executor was made
  }
  return {};
}

}  // namespace

Work send(Communicator& group, std::span<PlanCall const> calls, CollectiveOptions const& on) {
  if (calls.empty()) return {};
  if (calls.size() == 1) return send_one(group, calls.front(), on);
  Group together(group, on);
  for (PlanCall const& call : calls) send_one(group, call, {});
  return together.end();
}

}  // namespace weft
