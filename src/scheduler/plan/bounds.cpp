#include "scheduler/plan/bounds.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/exposed_sending.hpp"
#include "scheduler/plan/launch_bound.hpp"
#include "scheduler/plan/memory_bound.hpp"
#include "scheduler/plan/sent_along.hpp"

namespace weft {

namespace {

/// The bound by memory looks at no more cuts than this, and at fewer in large graphs (cuts x operators is limited,
/// too): the bound is tighter where graphs are small.
constexpr std::size_t kFewCuts = 48;
constexpr std::size_t kOperatorsCut = 1'000'000;

class Bounds {
 public:
  explicit Bounds(Problem const& problem) : problem_(problem) {
    auto const tasks = problem.tasks().size();
    bodies_ = {.seconds = std::vector<double>(tasks), .launches = std::vector<bool>(tasks, false)};
    for (std::size_t i = 0; i < tasks; ++i) bodies_.seconds[i] = problem.tasks()[i].seconds;
    heads_ = paths(false, std::vector<double>(tasks, 0));
    drop_latencies();
  }

  LowerBound run(double contention, std::int64_t capacity) {
    LowerBound bounds;
    auto const path = longest_path();
    for (TaskId const task : path) bounds.critical_path_s += problem_.task(task).seconds;
    heads_ = paths(false, sent_along(problem_, bodies_, path, false));
    auto const tails = paths(true, sent_along(problem_, bodies_, path, true));
    std::array<std::vector<HeadBodyTail>, kResources> jobs;
    for (std::size_t i = 0; i < tails.size(); ++i) {
      jobs[static_cast<std::size_t>(problem_.tasks()[i].resource)].push_back({heads_[i], bodies_.seconds[i], tails[i]});
    }
    for (std::size_t r = 0; r < jobs.size(); ++r) bounds.resource_s[r] = preemptive_bound(std::move(jobs[r]));
    auto const exposed = exposed_sending(problem_, bodies_, path, contention);
    if (contention > 0) bounds.contention_s = with_contention(contention, exposed);
    bounds.launches_s = launch_bound(problem_, path, contention);
    bounds.memory_s = memory_bound(problem_, {.bodies = bodies_.seconds,
                                              .exposed = exposed,
                                              .path = path,
                                              .cuts = cuts(path),
                                              .contention = contention,
                                              .capacity = capacity});
    return bounds;
  }

 private:
  /// The longest path through all tasks, in its order.
  std::vector<TaskId> longest_path() const {
    TaskId at_end = kNone;
    for (TaskId const task : problem_.order()) {
      if (problem_.after(task).empty() && (at_end == kNone || length_to(task) > length_to(at_end))) at_end = task;
    }
    std::vector<TaskId> path;
    for (TaskId task = at_end; task != kNone;) {
      path.push_back(task);
      TaskId longest = kNone;
      for (TaskId const earlier : problem_.before(task)) {
        if (longest == kNone || length_to(earlier) > length_to(longest)) longest = earlier;
      }
      task = longest;
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

  /// Computing tasks of the path, or some of them, evenly from its end.
  std::vector<TaskId> cuts(std::vector<TaskId> const& path) const {
    std::vector<TaskId> all;
    for (auto task = path.rbegin(); task != path.rend(); ++task) {
      if (problem_.task(*task).resource == Resource::compute) all.push_back(*task);
    }
    std::vector<TaskId> some;
    std::size_t const most = std::max(kFewCuts, kOperatorsCut / std::max<std::size_t>(1, problem_.tasks().size()));
    std::size_t const stride = all.size() / most + 1;
    for (std::size_t i = 0; i < all.size(); i += stride) some.push_back(all[i]);
    return some;
  }
  [[nodiscard]] double length_to(TaskId task) const { return heads_[at(task)] + problem_.task(task).seconds; }

  /// The longest path to each task (or from it), none shorter than `least`.
  std::vector<double> paths(bool from_end, std::vector<double> least) const {
    auto const& order = problem_.order();
    for (std::size_t i = 0; i < order.size(); ++i) {
      TaskId const task = from_end ? order[order.size() - 1 - i] : order[i];
      double const with_it = least[at(task)] + problem_.task(task).seconds;
      for (TaskId const next : from_end ? problem_.before(task) : problem_.after(task)) {
        least[at(next)] = std::max(least[at(next)], with_it);
      }
    }
    return least;
  }

  /// Leaves the latency in the bodies of the tasks on one longest path through each kind and group of collectives.
  void drop_latencies() {
    using Class = std::pair<CollectiveKind, GroupId>;
    std::map<Class, std::vector<TaskId>> classes;
    for (TaskId const task : problem_.order()) {
      if (!is_link(problem_.task(task).resource)) continue;
      auto const& collective = problem_.graph().ops[at(problem_.task(task).ops.front())].collective;
      classes[{collective.kind, collective.group}].push_back(task);
    }
    for (auto const& [kind, members] : classes) {
      std::vector<bool> is_member(bodies_.seconds.size(), false);
      for (TaskId const task : members) is_member[at(task)] = true;
      for (TaskId const task : longest_chain(is_member)) bodies_.launches[at(task)] = true;
      for (TaskId const task : members) {
        if (!bodies_.launches[at(task)]) bodies_.seconds[at(task)] -= problem_.task(task).latency_s;
      }
    }
  }

  std::vector<TaskId> longest_chain(std::vector<bool> const& is_member) const {
    std::vector<int> count(is_member.size(), 0);            // by task: members on the longest path that ends with it
    std::vector<TaskId> previous(is_member.size(), kNone);  // by task: the member before it on that path
    TaskId last = kNone;
    for (TaskId const task : problem_.order()) {
      TaskId const through = is_member[at(task)] ? task : previous[at(task)];
      int const members = count[at(task)] + (is_member[at(task)] ? 1 : 0);
      if (is_member[at(task)]) {
        count[at(task)] = members;
        if (last == kNone || members > count[at(last)]) last = task;
      }
      for (TaskId const later : problem_.after(task)) {
        if (members > count[at(later)]) {
          count[at(later)] = members;
          previous[at(later)] = through;
        }
      }
    }
    std::vector<TaskId> chain;
    for (TaskId task = last; task != kNone; task = previous[at(task)]) chain.push_back(task);
    return chain;
  }

  double with_contention(double contention, ExposedSending const& exposed) const {
    std::array<double, kResources> busy{};
    for (std::size_t i = 0; i < bodies_.seconds.size(); ++i) {
      busy[static_cast<std::size_t>(problem_.tasks()[i].resource)] += bodies_.seconds[i];
    }
    double const computing = busy[static_cast<std::size_t>(Resource::compute)];
    // Two links can send at the same time: the busier one is sending for at least this long.
    double const sends = std::max(busy[static_cast<std::size_t>(Resource::between_hosts)],
                                  busy[static_cast<std::size_t>(Resource::within_host)]);
    double const alone = sending_alone(exposed);
    double const overlap = std::max(0.0, sends - alone);
    if (computing * (1 + contention) < overlap) return sends;
    return alone + computing + contention / (1 + contention) * overlap;
  }

  /// Head and tail are different times only where something is computed between them.
  double sending_alone(ExposedSending const& exposed) const {
    for (std::size_t i = 0; i < bodies_.seconds.size(); ++i) {
      auto const task = static_cast<TaskId>(i);
      bool const computes = problem_.task(task).resource == Resource::compute && bodies_.seconds[i] > 0;
      if (computes && exposed.behind_head(task) && exposed.before_tail(task)) {
        return exposed.head.seconds + exposed.tail.seconds;
      }
    }
    return std::max(exposed.head.seconds, exposed.tail.seconds);
  }

  Problem const& problem_;
  BoundBodies bodies_;
  std::vector<double> heads_;
};

}  // namespace

double preemptive_bound(std::vector<HeadBodyTail> jobs) {
  std::sort(jobs.begin(), jobs.end(), [](auto const& a, auto const& b) { return a.head < b.head; });
  std::priority_queue<std::pair<double, double>> open;  // tail, what is left of the body
  double now = 0;
  double bound = 0;
  std::size_t next = 0;
  while (next < jobs.size() || !open.empty()) {
    if (open.empty()) now = std::max(now, jobs[next].head);
    for (; next < jobs.size() && jobs[next].head <= now; ++next) open.emplace(jobs[next].tail, jobs[next].body);
    auto const [tail, left] = open.top();
    open.pop();
    double const until = next < jobs.size() ? std::min(now + left, jobs[next].head) : now + left;
    if (until < now + left) {
      open.emplace(tail, left - (until - now));
    } else {
      bound = std::max(bound, until + tail);
    }
    now = until;
  }
  return bound;
}

double LowerBound::best_s() const {
  double const resources = *std::max_element(resource_s.begin(), resource_s.end());
  return std::max({critical_path_s, resources, contention_s, launches_s});
}

double LowerBound::within_memory_s() const {
  return std::max(best_s(), memory_s);
}

LowerBound lower_bound(Problem const& problem, double contention, std::int64_t capacity) {
  return Bounds(problem).run(contention, capacity);
}

}  // namespace weft
