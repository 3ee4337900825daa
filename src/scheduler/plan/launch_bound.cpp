#include "scheduler/plan/launch_bound.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/launch_growth.hpp"

namespace weft {

namespace {

/// This many tasks of the path are tried as z, spread evenly over those that compute.
constexpr std::size_t kPlaces = 7;

std::vector<TaskId> places(Problem const& problem, std::vector<TaskId> const& path) {
  std::vector<TaskId> computing;
  for (TaskId const task : path) {
    if (problem.task(task).resource == Resource::compute) computing.push_back(task);
  }
  std::vector<TaskId> some;
  for (std::size_t i = 1; i <= kPlaces && !computing.empty(); ++i) {
    some.push_back(computing[i * computing.size() / (kPlaces + 1)]);
  }
  some.erase(std::unique(some.begin(), some.end()), some.end());
  return some;
}

class StepTime {
 public:
  StepTime(Problem const& problem, LinkTerms const& link) : link_(link) {
    for (Task const& task : problem.tasks()) computed_ += task.resource == Resource::compute ? task.seconds : 0;
    for (double const body : link.bodies) sent_ += body;
  }

  [[nodiscard]] double least(std::vector<LaunchChoice> const& first, std::vector<LaunchChoice> const& last) const {
    double least = std::numeric_limits<double>::infinity();
    for (LaunchChoice const& a : first) {
      for (LaunchChoice const& b : last) {
        double const sent = sent_ + link_.latency_s * (a.launches + b.launches);
        double const slowed = link_.contention / (1 + link_.contention) * sent;
        least = std::min(least, std::max(sent, computed_ + a.idle_s + b.idle_s + slowed));
      }
    }
    return least;
  }

 private:
  LinkTerms const& link_;
  double computed_ = 0;
  double sent_ = 0;
};

}  // namespace

double launch_bound(Problem const& problem, std::vector<TaskId> const& path, double contention) {
  double bound = 0;
  for (Resource const resource : {Resource::between_hosts, Resource::within_host}) {
    LinkTerms const link = LinkTerms::of(problem, resource, contention);
    if (!link.has_launches()) continue;
    LaunchGrowth const first(problem, link, path, false);
    LaunchGrowth const last(problem, link, path, true);
    StepTime const step(problem, link);
    for (TaskId const place : places(problem, path)) {
      bound = std::max(bound, step.least(first.choices(first.needed(place)), last.choices(last.needed(place))));
    }
  }
  return bound;
}

}  // namespace weft
