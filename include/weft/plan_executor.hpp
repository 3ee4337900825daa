#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/buffer.hpp"
#include "weft/cluster.hpp"
#include "weft/communicator.hpp"
#include "weft/op_graph.hpp"
#include "weft/schedule.hpp"

namespace weft {

/// What an operator of a graph is on this rank.
struct OpBinding {
  /// Does it: of all that are not collectives. Called by the thread that calls step(); a copy's by a stream's.
  std::function<void()> run{};
  // Of a collective:
  std::size_t count = 0;  ///< elements of the larger side (OpCollective::bytes)
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::avg;
  int root = 0;  ///< of a broadcast, a rank of the group's communicator
};

/// Plans a step: pure, the same on all ranks for the same arguments.
using StepPlanner = std::function<Schedule(OpGraph const&, CostModel const&)>;

struct PlanExecutorOptions {
  Cluster cluster{};      ///< what operators take until that is measured
  StepPlanner planner{};  ///< absent: plan_schedule() with `schedule`
  /// Without a capacity the cluster's memory_bytes; where that is 0 as much as the plan likes. The search is bounded by
  /// what it looks at, as its end must not depend on a rank's clock.
  ScheduleOptions schedule{.time_limit = std::chrono::hours(24)};
  /// Steps that are measured, after a first one that warms up; then it is planned again. 0: the first plan stays.
  int profile_steps = 5;
  bool blocking = false;  ///< each launch waits for the one before it: nothing overlaps
};

/// When an operator ran in the last step.
struct OpTiming {
  std::chrono::steady_clock::time_point started;
  std::chrono::steady_clock::time_point finished;
};

/// Runs the plan of a step: computes on the caller's thread, in the plan's order, and sends the plan's collectives,
/// those that are merged as one, on a stream for each resource, as soon as what they need has been computed and it is
/// their turn. Nothing starts before what it waits for has ended, however long that takes. The first steps are
/// measured; then all ranks agree on what each operator takes (of the ranks' medians the median, of two the larger) and
/// on what links carry, and plan again.
///
///   weft::PlanExecutor executor(world, graph, bindings, {.cluster = cluster});
///   for (int step = 0; step < steps; ++step) executor.step();
///
/// Collectives work in place, in symmetric memory that the executor gives them (buffer()). The bits of their results do
/// not depend on the plan. The plan's capacity is about the tensors of the graph: these buffers are there all the time.
///
/// For host memory. Not thread-safe: one thread makes all calls, and between the calls of a step no others on the
/// communicators. A callback that throws, or a collective that fails, fails the step on every rank: the communicators
/// are aborted with a reason that names rank, operator and cause; every later step() throws that again.
class PlanExecutor {
 public:
  /// Collective over `world`. Plans, and checks that all ranks have the same graph, bindings, options and plan.
  /// `groups` are the communicators of graph.groups, in whose sets world's ranks are; they and `world` must outlive
  /// this and stay where they are.
  /// @throws on every rank: Error{invalid_argument} where it is found, Error{mismatch} on the others, naming the rank:
  /// as check_graph(), check_cluster() and plan_schedule(); an operator without a callback; a collective without
  /// elements, with others than its bytes, or with such that its ranks cannot share; a plan that is not one of the
  /// graph. Error{unsupported} for CollectiveKind::permute. Error{mismatch} naming the first rank that differs from
  /// rank 0. Error{out_of_memory} where a rank has no memory for the collectives.
  PlanExecutor(Communicator& world, std::vector<Communicator*> groups, OpGraph graph, std::vector<OpBinding> bindings,
               PlanExecutorOptions const& options);
  /// For graphs of one group, or none: `world` is its communicator.
  PlanExecutor(Communicator& world, OpGraph graph, std::vector<OpBinding> bindings, PlanExecutorOptions const& options);
  /// Local: waits for what is under way.
  ~PlanExecutor();
  PlanExecutor(PlanExecutor&&) noexcept;
  PlanExecutor& operator=(PlanExecutor&&) noexcept;

  /// The memory of collective `op`, zero at first: what an all_reduce and a broadcast work on; of an all_gather all
  /// ranks' parts; of a reduce_scatter all ranks' sums before, of which it leaves this rank's part and rubbish.
  /// Valid until the step() that plans again; contents move along, unless some rank has no memory for both: then the
  /// first plan stays on all. @throws Error{invalid_argument} for any other op.
  [[nodiscard]] BufferView buffer(OpId op) const;
  /// This rank's part of it, of an all_gather or a reduce_scatter.
  [[nodiscard]] BufferView part(OpId op) const;
  /// Grows when step() has moved the buffers.
  [[nodiscard]] std::size_t generation() const noexcept;

  /// Collective: one step, at whose end all collectives have ended. The one after the last that is measured plans again
  /// when it ends: it takes longer by that. Others allocate nothing but what enqueueing on a stream does.
  /// @throws what a callback threw, as Error{aborted} naming the operator, or an Error with its own code; Error of a
  /// collective; Error{mismatch} where ranks come to different plans.
  void step();

  /// With what was measured, once it was.
  [[nodiscard]] OpGraph const& graph() const noexcept;
  [[nodiscard]] Cluster const& cluster() const noexcept;
  [[nodiscard]] Schedule const& plan() const noexcept;
  /// True once it was planned from measured times.
  [[nodiscard]] bool is_measured() const noexcept;
  /// Of every operator in the last step, by OpId.
  [[nodiscard]] std::span<OpTiming const> timings() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
