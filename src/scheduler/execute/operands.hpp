#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/communicator.hpp"
#include "weft/error.hpp"
#include "weft/plan_executor.hpp"

namespace weft {

/// One call to a communicator, which sends one collective, or several as one.
struct PlanCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  BufferView whole{};
  ReduceOp op = ReduceOp::avg;
  int root = 0;
};

/// The symmetric memory of a plan's collectives: those that are merged lie next to one another.
class Operands {
 public:
  /// Collective over the groups' communicators; a rank may be in several of them. Where the ranks of one group have no
  /// memory left, they still allocate the rest, as others wait for that, and shortage() tells.
  Operands(OpGraph const& graph, std::span<OpBinding const> bindings, std::span<Communicator* const> groups,
           Schedule const& plan);

  /// The first allocation that failed for want of memory; if it is set, these operands are of no use.
  [[nodiscard]] std::optional<Error> const& shortage() const { return shortage_; }

  /// The memory of a collective; empty for other operators.
  [[nodiscard]] BufferView of(OpId op) const { return views_[static_cast<std::size_t>(op)]; }
  /// The calls that send launch `launch`: all_reduces and broadcasts that follow one another are one call.
  [[nodiscard]] std::span<PlanCall const> calls(std::int32_t launch) const {
    return calls_[static_cast<std::size_t>(launch)];
  }
  void copy_from(Operands const& other) const;

 private:
  BufferView lay_out(std::span<OpId const> ops, std::span<OpBinding const> bindings, Communicator& group);

  std::optional<Error> shortage_;
  std::vector<Buffer> buffers_;
  std::vector<BufferView> views_;             ///< by OpId
  std::vector<std::vector<PlanCall>> calls_;  ///< by launch
};

/// Launches calls on the stream of `on`, as one Work; two or more calls as a Group.
Work send(Communicator& group, std::span<PlanCall const> calls, CollectiveOptions const& on);

/// This rank's part of a collective's memory.
[[nodiscard]] BufferView part_of(BufferView const& whole, Communicator const& group);

}  // namespace weft
