#include "scheduler/plan/exposed_sending.hpp"

#include <algorithm>
#include <utility>

#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

Exposure exposed(Problem const& problem, BoundBodies const& bodies, std::vector<double> const& sent,
                 double contention) {
  std::vector<std::pair<double, double>> computing;  // of each task: the seconds sent before it, its own seconds
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (problem.tasks()[i].resource != Resource::compute || bodies.seconds[i] <= 0) continue;
    computing.emplace_back(sent[i], bodies.seconds[i]);
  }
  std::sort(computing.begin(), computing.end());
  Exposure most;
  double free = 0;  // seconds computed by tasks that need less sending
  for (auto const& [needed, seconds] : computing) {
    double const alone = needed - (1 + contention) * free;
    if (alone > most.seconds) most = {alone, needed};
    free += seconds;
  }
  return most;
}

}  // namespace

ExposedSending exposed_sending(Problem const& problem, BoundBodies const& bodies, std::vector<TaskId> const& path,
                               double contention) {
  ExposedSending found{.before = sent_beside(problem, bodies, path, false),
                       .after = sent_beside(problem, bodies, path, true)};
  bool between = false;
  bool within = false;
  for (std::size_t i = 0; i < bodies.seconds.size(); ++i) {
    between = between || (problem.tasks()[i].resource == Resource::between_hosts && bodies.seconds[i] > 0);
    within = within || (problem.tasks()[i].resource == Resource::within_host && bodies.seconds[i] > 0);
  }
  if (between && within) return found;
  found.head = exposed(problem, bodies, found.before, contention);
  found.tail = exposed(problem, bodies, found.after, contention);
  return found;
}

}  // namespace weft
