#include "scheduler/plan/launch_moves.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

/// Cuts `all` into pieces that end at `ends`.
Launches cut(std::vector<OpId> const& all, std::vector<std::size_t> const& ends) {
  Launches pieces;
  std::size_t begin = 0;
  for (std::size_t const end : ends) {
    if (end <= begin) continue;
    pieces.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(begin),
                        all.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return pieces;
}

}  // namespace

std::vector<Neighbours> launches_of(Plan const& plan) {
  std::map<std::pair<CollectiveKind, GroupId>, std::vector<TaskId>> classes;
  for (TaskId const task : plan.run.started) {
    OpNode const& op = plan.problem->graph().ops[at(plan.problem->task(task).ops.front())];
    if (op.kind == OpKind::collective) classes[{op.collective.kind, op.collective.group}].push_back(task);
  }
  auto const ops = [&](std::vector<TaskId> const& tasks, std::size_t i) {
    return i < tasks.size() ? plan.problem->task(tasks[i]).ops : std::vector<OpId>{};
  };
  std::vector<Neighbours> launches;
  for (auto const& [kind, tasks] : classes) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      launches.push_back({i > 0 ? ops(tasks, i - 1) : std::vector<OpId>{}, ops(tasks, i), ops(tasks, i + 1)});
    }
  }
  return launches;
}

double score_of(Plan const& plan) {
  constexpr double kSent = 0.1;
  constexpr double kLate = 0.05;
  double sent = 0;
  double ends = 0;
  double computed = 0;
  for (std::size_t i = 0; i < plan.run.tasks.size(); ++i) {
    Task const& task = plan.problem->tasks()[i];
    if (is_link(task.resource)) sent += task.seconds;
    if (task.resource != Resource::compute) continue;
    ends += task.seconds * plan.run.tasks[i].end_s;
    computed += task.seconds;
  }
  return plan.run.makespan_s + kSent * sent + (computed > 0 ? kLate * ends / computed : 0);
}

std::vector<Launches> moves_of(Neighbours const& here) {
  std::vector<OpId> all = here.before;
  all.insert(all.end(), here.launch.begin(), here.launch.end());
  all.insert(all.end(), here.after.begin(), here.after.end());
  std::size_t const a = here.before.size();
  std::size_t const b = a + here.launch.size();
  std::size_t const c = all.size();
  std::size_t const middle = a + (b - a) / 2;
  std::vector<Launches> moves;
  if (a > 0) {
    moves.push_back(cut(all, {b, c}));
    if (c > b) moves.push_back(cut(all, {c}));
    if (b - a > 1) moves.push_back(cut(all, {a + 1, b, c}));
    if (b - a > 2) moves.push_back(cut(all, {middle, b, c}));
    if (a > 1) moves.push_back(cut(all, {a - 1, b, c}));
    if (a > 2) moves.push_back(cut(all, {a / 2, b, c}));
    if (c > b && b - a > 1) moves.push_back(cut(all, {middle, c}));
  }
  std::size_t const size = b - a;
  std::size_t last = a;
  for (std::size_t const place : {a + 1, a + size / 4, a + size / 2, a + 3 * size / 4, b - 1}) {
    if (place > last && place < b) moves.push_back(cut(all, {a, place, b, c}));
    last = std::max(last, place);
  }
  return moves;
}

bool is_gather(OpNode const& op) {
  return op.collective.kind == CollectiveKind::all_gather || op.collective.kind == CollectiveKind::broadcast;
}

Merged arrangement_of(Plan const& plan) {
  auto const& ops = plan.problem->graph().ops;
  Merged merged{.key = std::vector<double>(ops.size()), .earlier = std::vector<bool>(ops.size(), false)};
  for (std::size_t i = 0; i < plan.run.started.size(); ++i) {
    Task const& task = plan.problem->task(plan.run.started[i]);
    for (OpId const op : task.ops) merged.key[at(op)] = static_cast<double>(i);
    if (task.ops.size() > 1) merged.launches.push_back(task.ops);
  }
  return merged;
}

Merged rearranged(Merged merged, OpGraph const& graph, Launches const& instead) {
  std::vector<bool> moved(graph.ops.size(), false);
  for (auto const& launch : instead) {
    for (OpId const op : launch) moved[at(op)] = true;
  }
  std::erase_if(merged.launches, [&](auto const& launch) { return moved[at(launch.front())]; });
  for (auto const& launch : instead) {
    double key = merged.key[at(launch.front())];
    for (OpId const op : launch) {
      key = is_gather(graph.ops[at(op)]) ? std::min(key, merged.key[at(op)]) : std::max(key, merged.key[at(op)]);
    }
    for (OpId const op : launch) {
      merged.earlier[at(op)] = key < merged.key[at(op)];
      merged.key[at(op)] = key;
    }
    if (launch.size() > 1) merged.launches.push_back(launch);
  }
  return merged;
}

}  // namespace weft
