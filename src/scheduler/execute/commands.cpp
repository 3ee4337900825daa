#include "scheduler/execute/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "scheduler/graph/at.hpp"
#include "scheduler/graph/dependencies.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

class Writer {
 public:
  Writer(OpGraph const& graph, Schedule const& plan) : graph_(graph), plan_(plan), launch_of_(graph.ops.size(), kNone) {
    assign_launches();
    find_dependencies();
  }

  std::vector<PlanCommand> overlapped() {
    for (std::int32_t launch = 0; launch < count(); ++launch) {
      if (is_sent(launch)) queues_[queue_of(launch)].push_back(launch);
    }
    send_what_can();
    for (std::int32_t launch = 0; launch < count(); ++launch) {
      if (is_sent(launch)) continue;
      for (std::int32_t const earlier : before_[at(launch)]) wait(earlier);
      add(PlanCommand::Kind::run, launch);
      issued_[at(launch)] = true;
      send_what_can();
    }
    return std::move(commands_);
  }

  std::vector<PlanCommand> blocking() {
    for (std::int32_t launch = 0; launch < count(); ++launch) {
      add(is_sent(launch) ? PlanCommand::Kind::send : PlanCommand::Kind::run, launch);
      if (is_sent(launch)) add(PlanCommand::Kind::wait, launch);
    }
    return std::move(commands_);
  }

 private:
  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(plan_.launches.size()); }
  [[nodiscard]] Resource resource(std::int32_t launch) const { return plan_.launches[at(launch)].resource; }
  [[nodiscard]] std::size_t queue_of(std::int32_t launch) const { return static_cast<std::size_t>(resource(launch)); }
  [[nodiscard]] bool is_sent(std::int32_t launch) const { return resource(launch) != Resource::compute; }

  [[noreturn]] void refuse(OpId op, char const* why) const {
    std::string const name = op >= 0 && at(op) < graph_.ops.size() ? graph_.ops[at(op)].name : "there is none";
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("plan executor: operator {} ({}) {}: this is no plan of graph {}", op, name, why, graph_.name));
  }

  void assign_launches() {
    for (std::int32_t launch = 0; launch < count(); ++launch) {
      auto const& ops = plan_.launches[at(launch)].ops;
      if (ops.empty()) throw Error(ErrorCode::invalid_argument, "plan executor: a launch without operators");
      for (OpId const op : ops) {
        if (op < 0 || at(op) >= launch_of_.size()) refuse(op, "is in the plan");
        if (launch_of_[at(op)] != kNone) refuse(op, "is in the plan twice");
        launch_of_[at(op)] = launch;
        check_place(op, ops, launch);
      }
    }
    auto const missing = std::find(launch_of_.begin(), launch_of_.end(), kNone);
    if (missing != launch_of_.end()) {
      refuse(static_cast<OpId>(missing - launch_of_.begin()), "is not in the plan");
    }
  }

  void check_place(OpId op, std::vector<OpId> const& ops, std::int32_t launch) const {
    OpNode const& node = graph_.ops[at(op)];
    OpNode const& first = graph_.ops[at(ops.front())];
    bool const sends = resource(launch) == Resource::between_hosts || resource(launch) == Resource::within_host;
    if (sends != (node.kind == OpKind::collective)) refuse(op, "is on another resource than its kind says");
    if (ops.size() == 1) return;
    bool const merges = node.kind == OpKind::collective && node.collective.kind == first.collective.kind &&
                        node.collective.group == first.collective.group;
    if (!merges) refuse(op, "is merged with one of another kind or group");
  }

  void find_dependencies() {
    Dependencies const dependencies(graph_);
    before_.resize(plan_.launches.size());
    for (std::int32_t launch = 0; launch < count(); ++launch) {
      auto& before = before_[at(launch)];
      for (OpId const op : plan_.launches[at(launch)].ops) {
        for (OpId const earlier : dependencies.before(op)) {
          if (launch_of_[at(earlier)] >= launch) refuse(op, "starts before what it waits for has ended");
          before.push_back(launch_of_[at(earlier)]);
        }
      }
      std::sort(before.begin(), before.end());
      before.erase(std::unique(before.begin(), before.end()), before.end());
    }
    issued_.assign(plan_.launches.size(), false);
    place_.assign(plan_.launches.size(), 0);
    for (auto& seen : seen_) seen.fill(0);
  }

  void add(PlanCommand::Kind kind, std::int32_t launch) { commands_.push_back({kind, launch, resource(launch)}); }

  /// Each queue runs in order, so waiting for one launch in it means waiting for all before it.
  void wait(std::int32_t launch) {
    if (!is_sent(launch)) return;
    auto& seen = seen_[static_cast<std::size_t>(Resource::compute)][queue_of(launch)];
    if (place_[at(launch)] <= seen) return;
    seen = place_[at(launch)];
    add(PlanCommand::Kind::wait, launch);
  }

  void follow(std::int32_t launch, Resource on) {
    if (!is_sent(launch) || resource(launch) == on) return;
    auto& seen = seen_[static_cast<std::size_t>(on)][queue_of(launch)];
    if (place_[at(launch)] <= seen) return;
    seen = place_[at(launch)];
    commands_.push_back({PlanCommand::Kind::follow, launch, on});
  }

  /// Sends the first launches of the queues, as long as all that they wait for has been issued.
  void send_what_can() {
    for (bool again = true; again;) {
      again = false;
      for (std::size_t queue = 0; queue < queues_.size(); ++queue) {
        while (next_[queue] < queues_[queue].size() && can_send(queues_[queue][next_[queue]])) {
          std::int32_t const launch = queues_[queue][next_[queue]++];
          for (std::int32_t const earlier : before_[at(launch)]) follow(earlier, resource(launch));
          add(PlanCommand::Kind::send, launch);
          issued_[at(launch)] = true;
          place_[at(launch)] = next_[queue];
          again = true;
        }
      }
    }
  }

  [[nodiscard]] bool can_send(std::int32_t launch) const {
    auto const& before = before_[at(launch)];
    return std::all_of(before.begin(), before.end(), [&](std::int32_t earlier) { return issued_[at(earlier)]; });
  }

  OpGraph const& graph_;
  Schedule const& plan_;
  std::vector<std::int32_t> launch_of_;
  std::vector<std::vector<std::int32_t>> before_;  ///< by launch: the launches that it waits for
  std::vector<bool> issued_;
  std::vector<std::size_t> place_;  ///< by launch: its place in its queue, from 1
  std::array<std::vector<std::int32_t>, kResources> queues_;
  std::array<std::size_t, kResources> next_{};
  /// By the waiting queue and the queue it waits for: up to which place it has waited.
  std::array<std::array<std::size_t, kResources>, kResources> seen_{};
  std::vector<PlanCommand> commands_;
};

}  // namespace

std::vector<PlanCommand> plan_commands(OpGraph const& graph, Schedule const& plan, bool blocking) {
  Writer writer(graph, plan);
  return blocking ? writer.blocking() : writer.overlapped();
}

}  // namespace weft
