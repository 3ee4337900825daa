#include "scheduler/plan/plan_maker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/memory_order.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/bounds.hpp"
#include "scheduler/plan/loosened_order.hpp"
#include "scheduler/plan/policies.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

std::vector<double> random_urgency(std::size_t tasks, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> urgency(tasks);
  for (double& each : urgency) each = static_cast<double>(random() >> 11);
  return urgency;
}

}  // namespace

PlanMaker::PlanMaker(OpGraph const& graph, CostModel const& model, std::optional<std::int64_t> capacity,
                     double contention)
    : unmerged_(graph, model),
      serial_(low_memory_order(unmerged_)),
      serial_peak_(serial_peak(unmerged_, serial_)),
      capacity_(capacity.value_or(serial_peak_)),
      contention_(contention) {
  if (serial_peak_ > capacity_) find_less_memory();
  bound_ = lower_bound(unmerged_, contention, capacity_);
}

void PlanMaker::find_less_memory() {
  MemoryOrder least = memory_order(unmerged_);
  if (least.peak > capacity_) refuse_capacity(least.peak, least.bound);
  serial_ = std::move(least.order);
  serial_peak_ = least.peak;
}

void PlanMaker::refuse_capacity(std::int64_t peak, std::int64_t bound) const {
  auto const& name = unmerged_.graph().name;
  throw Error(
      ErrorCode::out_of_memory,
      peak == bound
          ? fmt::format("graph {}: no order of its operators takes {} bytes or less: the best of all takes {}, of "
                        "which {} are there all the time",
                        name, capacity_, peak, unmerged_.resident_bytes())
          : fmt::format("graph {}: no order of its operators was found that takes {} bytes or less: the best takes "
                        "{}, of which {} are there all the time; none can take less than {}",
                        name, capacity_, peak, unmerged_.resident_bytes(), bound));
}

PlanMaker::Draft PlanMaker::send_as_ready(PlanChoice choice) const {
  choice.send->capacity = capacity_;
  choice.send->contention = contention_;
  choice.send->window = choice.window;
  Sent sent = send_when_ready(unmerged_, serial_, *choice.send);
  auto problem = std::make_unique<Problem>(unmerged_.graph(), unmerged_.model(), sent.launches);
  std::vector<TaskId> serial;
  std::vector<bool> placed(problem->tasks().size(), false);
  for (OpId const op : sent.started) {
    TaskId const task = problem->task_of(op);
    if (!placed[at(task)]) serial.push_back(task);
    placed[at(task)] = true;
  }
  return {std::move(choice), std::move(sent.launches), std::move(problem), std::move(serial)};
}

PlanMaker::Draft PlanMaker::merge_as_told(PlanChoice choice) const {
  Merged const& merged = *choice.merged;
  std::unique_ptr<Problem> problem;
  try {
    problem = std::make_unique<Problem>(unmerged_.graph(), unmerged_.model(), merged.launches);
  } catch (Error const&) {
    return {std::move(choice)};  // merging would make a cycle
  }
  auto serial = serial_order_by(merged, *problem);
  if (serial_peak(*problem, serial) > capacity_) problem.reset();
  return {choice, merged.launches, std::move(problem), std::move(serial)};
}

PlanMaker::Draft PlanMaker::draft(PlanChoice choice) const {
  if (choice.merged) return merge_as_told(std::move(choice));
  if (choice.send) return send_as_ready(std::move(choice));
  while (true) {
    Merged merged = merge_collectives(unmerged_, serial_,
                                      {.gather_bytes = static_cast<std::int64_t>(choice.gather_bytes),
                                       .reduce_bytes = static_cast<std::int64_t>(choice.reduce_bytes),
                                       .capacity = capacity_,
                                       .share = choice.share,
                                       .taper = choice.taper});
    auto problem = std::make_unique<Problem>(unmerged_.graph(), unmerged_.model(), merged.launches);
    bool const any = !merged.launches.empty();
    auto serial = any ? serial_order_by(merged, *problem) : serial_;
    if (!any || serial_peak(*problem, serial) <= capacity_) {
      return {choice, std::move(merged.launches), std::move(problem), std::move(serial)};
    }
    choice.gather_bytes /= 2;
    choice.reduce_bytes /= 2;
  }
}

RunRules PlanMaker::rules_for(Draft const& draft) const {
  PlanChoice const& choice = draft.choice;
  RunRules rules{.capacity = capacity_, .contention = contention_};
  switch (choice.rule) {
    case StartRule::early:
      rules.window = choice.window;
      if (choice.rush > 0) rules.urgency = urgency_with_rush(*draft.problem, draft.serial, choice.rush);
      if (choice.depth > 0) rules.gates = prefetch_gates(*draft.problem, draft.serial, choice.depth);
      break;
    case StartRule::late: rules.gates = late_gates(*draft.problem, draft.serial, 1); break;
    case StartRule::raised:
      rules.window = 0;
      rules.gates = raised_gates(*draft.problem, draft.serial);
      break;
    case StartRule::blocking: rules.blocking = true; break;
    case StartRule::random: rules.urgency = random_urgency(draft.serial.size(), choice.seed); break;
  }
  if (rules.urgency.empty()) rules.urgency = urgency_by_order(draft.serial);
  return rules;
}

Plan PlanMaker::run(Draft draft, double give_up_s) const {
  RunRules rules = rules_for(draft);
  rules.serial = std::move(draft.serial);
  rules.give_up_s = give_up_s;
  Run run = run_tasks(*draft.problem, rules);
  return {std::move(draft.problem), std::move(run)};
}

Plan PlanMaker::loosened(Plan plan, double most_s) const {
  constexpr double kRounding = 1e-9;
  auto const order = loosened_order(*plan.problem, plan.run);
  if (serial_peak(*plan.problem, order) > capacity_) return plan;
  Run run = run_tasks(*plan.problem, {.serial = order,
                                      .urgency = urgency_by_order(order),
                                      .capacity = capacity_,
                                      .contention = contention_,
                                      .in_order = true});
  double const most = std::max(plan.run.makespan_s, std::min(plan.run.makespan_s * (1 + kRounding), most_s));
  if (run.makespan_s <= most) plan.run = std::move(run);
  return plan;
}

}  // namespace weft
