#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/communicator.hpp"
#include "weft/plan_executor.hpp"

namespace weft {

/// A call that sends one collective, or several as one.
struct PlanCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  BufferView whole{};
  ReduceOp op = ReduceOp::avg;
  int root = 0;
};

/// Symmetric memory of a plan's collectives: those that are merged lie next to one another.
class Operands {
 public:
  /// Collective over the groups' communicators. @throws Error{out_of_memory} on every rank
  Operands(OpGraph const& graph, std::span<OpBinding const> bindings, std::span<Communicator* const> groups,
           Schedule const& plan);

  /// Of a collective; empty for others.
  [[nodiscard]] BufferView of(OpId op) const { return views_[static_cast<std::size_t>(op)]; }
  /// What launch `launch` is sent by: all_reduces and broadcasts that follow one another are one call.
  [[nodiscard]] std::span<PlanCall const> calls(std::int32_t launch) const {
    return calls_[static_cast<std::size_t>(launch)];
  }
  void copy_from(Operands const& other) const;

 private:
  BufferView lay_out(std::span<OpId const> ops, std::span<OpBinding const> bindings, Communicator& group);

  std::vector<Buffer> buffers_;
  std::vector<BufferView> views_;             ///< by OpId
  std::vector<std::vector<PlanCall>> calls_;  ///< by launch
};

/// Launches calls on the stream of `on`, as one Work: two or more as a Group.
Work send(Communicator& group, std::span<PlanCall const> calls, CollectiveOptions const& on);

/// This rank's part of a collective's memory.
[[nodiscard]] BufferView part_of(BufferView const& whole, Communicator const& group);

}  // namespace weft
