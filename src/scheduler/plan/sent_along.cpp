#include "scheduler/plan/sent_along.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

/// Adds up what the added tasks send on each link.
class SendingTime {
 public:
  SendingTime(Problem const& problem, BoundBodies const& bodies) : problem_(problem), bodies_(bodies) {}

  void add(TaskId id) {
    Task const& task = problem_.task(id);
    if (!is_link(task.resource)) return;
    auto& link = on_[task.resource == Resource::between_hosts ? 0 : 1];
    link.seconds += bodies_.seconds[at(id)];
    auto const& collective = problem_.graph().ops[at(task.ops.front())].collective;
    auto const [found, is_first] = link.latencies.try_emplace({collective.kind, collective.group}, task.latency_s);
    if (bodies_.launches[at(id)]) found->second = 0;  // its latency is counted in its own seconds
    if (!is_first) found->second = std::min(found->second, task.latency_s);
  }

  [[nodiscard]] double most() const {
    double most = 0;
    for (auto const& link : on_) {
      double seconds = link.seconds;
      for (auto const& [kind, latency] : link.latencies) seconds += latency;
      most = std::max(most, seconds);
    }
    return most;
  }

 private:
  struct Link {
    double seconds = 0;
    std::map<std::pair<CollectiveKind, GroupId>, double> latencies{};
  };
  Problem const& problem_;
  BoundBodies const& bodies_;
  std::array<Link, 2> on_{};
};

}  // namespace

std::vector<double> sent_along(Problem const& problem, BoundBodies const& bodies, std::vector<TaskId> const& path,
                               bool from_end) {
  std::vector<double> least(problem.tasks().size(), 0);
  std::vector<bool> seen(least.size(), false);
  SendingTime sent(problem, bodies);
  std::vector<TaskId> look;
  for (std::size_t i = 0; i < path.size(); ++i) {
    TaskId const task = from_end ? path[path.size() - 1 - i] : path[i];
    look.push_back(task);
    while (!look.empty()) {
      TaskId const from = look.back();
      look.pop_back();
      for (TaskId const next : from_end ? problem.after(from) : problem.before(from)) {
        if (seen[at(next)]) continue;
        seen[at(next)] = true;
        sent.add(next);
        look.push_back(next);
      }
    }
    least[at(task)] = sent.most();
  }
  return least;
}

std::vector<double> sent_beside(Problem const& problem, BoundBodies const& bodies, std::vector<TaskId> const& path,
                                bool from_end) {
  auto longest = sent_along(problem, bodies, path, from_end);
  auto const& order = problem.order();
  for (std::size_t i = 0; i < order.size(); ++i) {
    TaskId const task = from_end ? order[order.size() - 1 - i] : order[i];
    double const with_it = longest[at(task)] + (is_link(problem.task(task).resource) ? bodies.seconds[at(task)] : 0);
    for (TaskId const next : from_end ? problem.before(task) : problem.after(task)) {
      longest[at(next)] = std::max(longest[at(next)], with_it);
    }
  }
  return longest;
}

}  // namespace weft
