#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/memory_plan.hpp"
#include "weft/op_graph.hpp"
#include "weft/schedule.hpp"

namespace weft {

/// How the operators of a step follow one another, one at a time.
enum class OrderPolicy : std::uint8_t {
  weft,           ///< the least peak that is found; never more than any below
  program,        ///< by ids, where that is possible
  breadth_first,  ///< by the length of the longest chain that leads to an operator
  depth_first,    ///< back from the results; of what one needs first that which takes the most memory
  greedy,         ///< always what leaves the least
};
inline constexpr int kOrderPolicies = 5;
std::string_view to_string(OrderPolicy policy) noexcept;

/// The pieces of memory that a graph's tensors lie in, and when each is needed. Tensors that are aliases, or are
/// written over another one (OpTensor::in_place_of), share one.
struct TensorBuffers {
  std::vector<PlannedBuffer> buffers{};   ///< named after their first tensor
  std::vector<std::int32_t> buffer_of{};  ///< by tensor; kNone where neither an operator nor the step's end needs it
};

struct TensorPlanOptions {
  OrderPolicy policy = OrderPolicy::weft;
  std::int64_t alignment = 256;  ///< of every offset, in bytes
  /// Bytes there are: offsets that fit are enough. None: so are those of 1.001 times the live bytes, or of what is live
  /// with every buffer rounded up to the alignment.
  std::optional<std::int64_t> capacity{};
  /// Of the search for offsets, where placing them one after another is not the best there can be.
  std::chrono::milliseconds time_limit{2'000};
  int threads = 0;               ///< of that search; 0: one per core
  std::function<bool()> stop{};  ///< of that search, as MemoryPlanOptions::stop
};

/// An order of a graph's operators and where their tensors lie meanwhile.
struct TensorPlan {
  std::vector<OpId> order{};
  std::vector<std::int64_t> live{};  ///< bytes while each operator of the order runs
  std::int64_t live_bytes = 0;       ///< the most of them
  /// No order has less live at its worst; live_bytes where the order is known to be the best.
  std::int64_t bound_bytes = 0;
  std::int64_t resident_bytes = 0;  ///< of them, what is there all the time
  TensorBuffers tensors{};          ///< lives are places in the order
  MemoryPlan memory{};              ///< offsets of the buffers
};

/// Plans a step's memory: an order of operators for little live memory (docs/decisions/0022-orders-of-least-memory.md
/// has the method), and offsets for what lies in it. Updates and whatever else frees memory run as soon as that is so,
/// unless the graph's edges make them wait, as clipping does.
///
/// A plan is returned whether or not it fits `capacity`: it fits where memory.bytes is at most that; no order can where
/// bound_bytes is more. Pure; the order depends on the graph alone, offsets as plan_memory() says.
/// @throws Error{invalid_argument} as check_graph(); for an alignment below 1, a capacity below 0.
[[nodiscard]] TensorPlan plan_tensors(OpGraph const& graph, TensorPlanOptions const& options = {});

/// When buffers are needed while operators run one after another: lives are places in `order`.
/// @throws Error{invalid_argument} where `order` is not one of the graph's operators.
[[nodiscard]] TensorBuffers tensor_buffers(OpGraph const& graph, std::vector<OpId> const& order,
                                           std::int64_t alignment = 1);

/// When buffers are needed while a schedule runs: lives are places among its launches, in the order in which they
/// start. One ends where the first launch starts that starts when all who use it have ended.
/// @throws Error{invalid_argument} where the schedule is not one of the graph's.
[[nodiscard]] TensorBuffers tensor_buffers(OpGraph const& graph, Schedule const& schedule, std::int64_t alignment = 1);

}  // namespace weft
