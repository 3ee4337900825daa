#include "weft/plan_executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "core/log.hpp"
#include "runtime/timeline.hpp"
#include "scheduler/execute/agree.hpp"
#include "scheduler/execute/check_bindings.hpp"
#include "scheduler/execute/commands.hpp"
#include "scheduler/execute/operands.hpp"
#include "scheduler/execute/profile.hpp"
#include "scheduler/graph/at.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

using Clock = std::chrono::steady_clock;

/// One stream for each resource that something is sent on; computing has none.
std::vector<Stream> make_streams() {
  std::vector<Stream> streams;
  for (char const* name : {"weft-unused", "weft-between", "weft-within", "weft-copy"}) {
    streams.push_back(Stream::cpu({.name = name, .cpu = {}}));
  }
  return streams;
}

}  // namespace

class PlanExecutor::Impl {
 public:
  Impl(Communicator& world, std::vector<Communicator*> groups, OpGraph graph, std::vector<OpBinding> bindings,
       PlanExecutorOptions const& options)
      : world_(world),
        groups_(std::move(groups)),
        graph_(std::move(graph)),
        bindings_(std::move(bindings)),
        options_(options),
        cluster_(options.cluster) {
    Decision decision = decide([&] {
      check_bindings(graph_, bindings_, groups_);
      if (options_.profile_steps < 0) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("plan executor: profile_steps of {}", options_.profile_steps));
      }
    });
    streams_ = make_streams();
    profile_.emplace(graph_, options_.profile_steps);
    timings_.resize(graph_.ops.size());
    adopt(std::move(decision));
  }

  ~Impl() { drain(); }
  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  void step() {
    if (failure_) std::rethrow_exception(failure_);
    for (PlanCommand const& command : commands_) perform(command);
    finish();
    ++steps_;
    if (is_measured_ || !profile_->wants_more()) return;
    if (steps_ == 1) return;  // the first step only warms up
    profile_->add(timings_);
    if (!profile_->wants_more()) plan_again();
  }

  [[nodiscard]] BufferView buffer(OpId op) const {
    if (op >= 0 && at(op) < graph_.ops.size() && graph_.ops[at(op)].kind == OpKind::collective)
      return operands_->of(op);
    throw Error(ErrorCode::invalid_argument,
                fmt::format("plan executor: operator {} of graph {} is no collective", op, graph_.name));
  }
  [[nodiscard]] BufferView part(OpId op) const { return part_of(buffer(op), group_of(op)); }

  [[nodiscard]] std::size_t generation() const noexcept { return generation_; }
  [[nodiscard]] OpGraph const& graph() const noexcept { return graph_; }
  [[nodiscard]] Cluster const& cluster() const noexcept { return cluster_; }
  [[nodiscard]] Schedule const& plan() const noexcept { return plan_; }
  [[nodiscard]] bool is_measured() const noexcept { return is_measured_; }
  [[nodiscard]] std::span<OpTiming const> timings() const noexcept { return timings_; }

 private:
  struct Decision {
    Schedule plan;
    std::vector<PlanCommand> commands;
  };

  [[nodiscard]] Communicator& group_of(OpId op) const { return *groups_[at(graph_.ops[at(op)].collective.group)]; }

  /// Collective: the decision that all ranks come to alike; else no rank goes on.
  template <typename Checks>
  Decision decide(Checks const& checks) {
    Decision decision;
    PlanDigests digests;
    std::exception_ptr refusal;
    try {
      checks();
      CostModel const model(cluster_);
      decision.plan = options_.planner ? options_.planner(graph_, model) : search(model);
      decision.commands = plan_commands(graph_, decision.plan, options_.blocking);
      digests = digests_of(graph_, bindings_, options_);
      digests.plan = digest_of(decision.plan);
    } catch (...) {
      refusal = std::current_exception();
    }
    check_alike(world_, graph_, refusal ? nullptr : &digests);
    if (refusal) std::rethrow_exception(refusal);
    return decision;
  }

  [[nodiscard]] Schedule search(CostModel const& model) const {
    ScheduleOptions options = options_.schedule;
    if (!options.capacity && cluster_.memory_bytes > 0) options.capacity = cluster_.memory_bytes;
    if (!options.capacity) options.capacity = std::numeric_limits<std::int64_t>::max() / 4;  // no limit
    return plan_schedule(graph_, model, options);
  }

  /// Collective. Where any rank lacks memory for a second set of buffers, all ranks keep the plan they have.
  void adopt(Decision decision) {
    Operands next = make_operands(decision.plan);
    if (auto const shortage = shortage_of_ranks(world_, graph_, next.shortage())) {
      if (!operands_) throw Error(*shortage);
      log(LogLevel::warn,
          fmt::format("plan executor: graph {} keeps its first plan: {}", graph_.name, shortage->what()));
      return;
    }
    if (operands_) next.copy_from(*operands_);
    operands_.emplace(std::move(next));
    plan_ = std::move(decision.plan);
    commands_ = std::move(decision.commands);
    works_.assign(plan_.launches.size(), Work());
    ++generation_;
  }

  /// Collective.
  [[nodiscard]] Operands make_operands(Schedule const& plan) {
    try {
      return {graph_, bindings_, groups_, plan};
    } catch (std::exception const& error) {  // the others wait for allocations that this rank no longer makes
      abort_all(fmt::format("plan executor: graph {}: {}", graph_.name, error.what()));
      throw;
    }
  }

  void plan_again() {
    auto const seconds = medians_of_ranks(world_, profile_->medians());
    for (std::size_t op = 0; op < seconds.size(); ++op) {
      if (graph_.ops[op].kind != OpKind::collective) graph_.ops[op].seconds = seconds[op];
    }
    cluster_ = measure_links(world_, groups_, graph_, cluster_, streams_);
    Decision decision = decide([] {});
    is_measured_ = true;
    if (digest_of(decision.plan) == digest_of(plan_)) {
      plan_ = std::move(decision.plan);  // the same launches, with other times
    } else {
      adopt(std::move(decision));
    }
  }

  void perform(PlanCommand const& command) {
    switch (command.kind) {
      case PlanCommand::Kind::run: return run(plan_.launches[at(command.launch)].ops.front());
      case PlanCommand::Kind::send: return send_launch(command.launch);
      case PlanCommand::Kind::wait: return wait(command.launch);
      case PlanCommand::Kind::follow:
        return works_[at(command.launch)].wait_on(streams_[static_cast<std::size_t>(command.resource)]);
    }
  }

  void run(OpId op) {
    OpTiming& timing = timings_[at(op)];
    timing.started = now();
    try {
      bindings_[at(op)].run();
    } catch (...) {
      fail(op);
    }
    timing.finished = now();
  }

  void send_launch(std::int32_t launch) {
    OpId const first = plan_.launches[at(launch)].ops.front();
    Resource const resource = plan_.launches[at(launch)].resource;
    Stream const& stream = streams_[static_cast<std::size_t>(resource)];
    try {
      works_[at(launch)] = resource == Resource::copy
                               ? enqueue_work(stream, bindings_[at(first)].run)
                               : send(group_of(first), operands_->calls(launch), {.stream = stream});
    } catch (...) {
      fail(first);
    }
  }

  void wait(std::int32_t launch) {
    try {
      works_[at(launch)].wait();
    } catch (...) {
      fail(plan_.launches[at(launch)].ops.front());
    }
  }

  /// Waits until all that was sent has ended, and notes when it did.
  void finish() {
    for (std::size_t launch = 0; launch < works_.size(); ++launch) {
      if (plan_.launches[launch].resource == Resource::compute) continue;
      wait(static_cast<std::int32_t>(launch));
      WorkTimings const times = works_[launch].timings();
      for (OpId const op : plan_.launches[launch].ops) timings_[at(op)] = {times.started, times.finished};
    }
  }

  /// Called while the cause is being handled. Peers would wait for what this rank no longer sends.
  [[noreturn]] void fail(OpId op) {
    ErrorCode code = ErrorCode::aborted;
    std::string text;
    try {
      throw;
    } catch (Error const& error) {
      code = error.code();
      text = error.what();
    } catch (std::exception const& error) {
      text = error.what();
    } catch (...) {
      text = "an exception of unknown type";
    }
    std::string const what =
        fmt::format("plan executor: operator {} ({}) in step {}: {}", op, graph_.ops[at(op)].name, steps_, text);
    failure_ = std::make_exception_ptr(Error(code, what));
    abort_all(what);
    drain();
    std::rethrow_exception(failure_);
  }

  void abort_all(std::string const& what) {
    std::string const reason = fmt::format("rank {}: {}", world_.rank(), what);
    for (Communicator* const group : groups_) group->abort(reason);
    world_.abort(reason);
  }

  void drain() noexcept {
    for (Stream& stream : streams_) stream.synchronize();
  }

  Communicator& world_;
  std::vector<Communicator*> groups_;
  OpGraph graph_;
  std::vector<OpBinding> bindings_;
  PlanExecutorOptions options_;
  Cluster cluster_;
  std::vector<Stream> streams_;  ///< by Resource
  std::optional<StepProfile> profile_;
  std::optional<Operands> operands_;
  Schedule plan_;
  std::vector<PlanCommand> commands_;
  std::vector<Work> works_;  ///< by launch, of the last step
  std::vector<OpTiming> timings_;
  std::size_t generation_ = 0;
  std::int64_t steps_ = 0;
  bool is_measured_ = false;
  std::exception_ptr failure_;
};

PlanExecutor::PlanExecutor(Communicator& world, std::vector<Communicator*> groups, OpGraph graph,
                           std::vector<OpBinding> bindings, PlanExecutorOptions const& options)
    : impl_(std::make_unique<Impl>(world, std::move(groups), std::move(graph), std::move(bindings), options)) {}

PlanExecutor::PlanExecutor(Communicator& world, OpGraph graph, std::vector<OpBinding> bindings,
                           PlanExecutorOptions const& options)
    : impl_(nullptr) {
  std::vector<Communicator*> groups(graph.groups.size(), &world);
  impl_ = std::make_unique<Impl>(world, std::move(groups), std::move(graph), std::move(bindings), options);
}

PlanExecutor::~PlanExecutor() = default;
PlanExecutor::PlanExecutor(PlanExecutor&&) noexcept = default;
PlanExecutor& PlanExecutor::operator=(PlanExecutor&&) noexcept = default;

BufferView PlanExecutor::buffer(OpId op) const {
  return impl_->buffer(op);
}
BufferView PlanExecutor::part(OpId op) const {
  return impl_->part(op);
}
std::size_t PlanExecutor::generation() const noexcept {
  return impl_->generation();
}
void PlanExecutor::step() {
  impl_->step();
}
OpGraph const& PlanExecutor::graph() const noexcept {
  return impl_->graph();
}
Cluster const& PlanExecutor::cluster() const noexcept {
  return impl_->cluster();
}
Schedule const& PlanExecutor::plan() const noexcept {
  return impl_->plan();
}
bool PlanExecutor::is_measured() const noexcept {
  return impl_->is_measured();
}
std::span<OpTiming const> PlanExecutor::timings() const noexcept {
  return impl_->timings();
}

}  // namespace weft
