#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// Indices into OpGraph::ops, OpGraph::tensors and OpGraph::groups.
using OpId = std::int32_t;
using TensorId = std::int32_t;
using GroupId = std::int32_t;
inline constexpr std::int32_t kNone = -1;

enum class OpKind : std::uint8_t {
  compute,     ///< forward, backward: costs by flops and memory_bytes
  collective,  ///< costs by collective
  copy,        ///< between memories of one rank: costs by memory_bytes
  update,      ///< of weights: costs as compute does; it may wait until the next step needs the weights
};

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  permute,  ///< every rank sends to at most one and receives from at most one
};

/// "compute", "all_reduce": the names of the JSON form as well.
std::string_view to_string(OpKind kind) noexcept;
std::string_view to_string(CollectiveKind kind) noexcept;

/// Ranks among which a collective runs: every member belongs to one set, all sets run it at the same time and share the
/// links of the hosts that they have in common.
struct OpGroup {
  std::string name{};
  std::vector<std::vector<int>> sets{};  ///< of ranks from 0; sets of one size, that have no rank in common
};

/// A value, written once, or a part or a later state of one that lies in the same memory.
struct OpTensor {
  std::string name{};
  std::int64_t bytes = 0;
  /// Needed when the step has ended: parameters, optimizer states, results. What no operator writes is there from the
  /// beginning.
  bool kept = false;
  /// It lies in that tensor's memory (a view, or what an update in place leaves) and keeps all of it alive. Operators
  /// that write into one memory are ordered by data and control edges; no others are added for it.
  TensorId alias_of = kNone;
  /// It may be written over that tensor, which its operator reads, where no other operator reads it.
  TensorId in_place_of = kNone;
};

/// What a collective moves. `bytes` are those of the larger side of one rank: what an all_reduce reduces, what an
/// all_gather returns, what a reduce_scatter is given, all that an all_to_all, broadcast or permute sends.
struct OpCollective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::int64_t bytes = 0;
  GroupId group = kNone;
};

struct OpNode {
  std::string name{};
  OpKind kind = OpKind::compute;
  double flops = 0;
  double memory_bytes = 0;          ///< read from and written to memory
  std::optional<double> seconds{};  ///< measured; overrides what a cost model would say
  OpCollective collective{};        ///< of a collective
  std::vector<TensorId> reads{};    ///< each written by an operator that has to end before, or there from the beginning
  std::vector<TensorId> writes{};   ///< each by this operator alone
  std::vector<OpId> after{};        ///< control edges: operators that have to end before this one starts
  int layer = kNone;                ///< of the model, where known: reports and settings are given per layer
  /// Whether a second run gives what the first did (recompute.hpp); none: by its kind and name.
  std::optional<bool> repeatable{};
};

/// One rank's part of a training step, before anything is known of when its operators run: all ranks have the same.
///
/// Plain data; functions that take a graph check it (check_graph()) where it comes from outside. Ids are stable, in the
/// order of insertion, which need not be an order in which operators can run.
struct OpGraph {
  std::string name{};
  std::vector<OpNode> ops{};
  std::vector<OpTensor> tensors{};
  std::vector<OpGroup> groups{};

  OpId add(OpNode op);
  TensorId add(OpTensor tensor);
  GroupId add(OpGroup group);
};

/// @throws Error{invalid_argument}, naming operator and tensor: ids out of range, sizes, flops or seconds that are
/// negative or not finite, tensors of more than 2^60 bytes in all, a collective of more than 2^50, a tensor written
/// twice or read and written by one operator, an alias of itself or of one that has other bytes to hold than fit, an
/// in_place_of that its operator does not read, memory used before its first writer, a collective without a group or in
/// an empty one, sets of different sizes or with a rank twice, a cycle (its operators are named).
void check_graph(OpGraph const& graph);

/// The operators in an order in which they can run: of those that can be next the lowest id first.
/// @throws Error{invalid_argument} where there is a cycle, naming the operators of one.
[[nodiscard]] std::vector<OpId> topological_order(OpGraph const& graph);

/// The operator that writes each tensor, or kNone.
[[nodiscard]] std::vector<OpId> writers_of(OpGraph const& graph);

/// The tensor in whose memory each one lies: the end of its chain of alias_of.
[[nodiscard]] std::vector<TensorId> memory_of(OpGraph const& graph);

}  // namespace weft
