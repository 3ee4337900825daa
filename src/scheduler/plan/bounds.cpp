#include "scheduler/plan/bounds.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/memory_bound.hpp"

namespace weft {

namespace {

/// At no more cuts than this, or than so many operators are looked at with: a tighter bound where graphs are small.
constexpr std::size_t kFewCuts = 48;
constexpr std::size_t kOperatorsCut = 1'000'000;

bool is_link(Resource resource) {
  return resource == Resource::between_hosts || resource == Resource::within_host;
}

class Bounds {
 public:
  explicit Bounds(Problem const& problem) : problem_(problem), bodies_(problem.tasks().size()) {
    for (std::size_t i = 0; i < bodies_.size(); ++i) bodies_[i] = problem.tasks()[i].seconds;
    heads_ = paths(false);
    tails_ = paths(true);
    drop_latencies();
  }

  LowerBound run(double contention, std::int64_t capacity) const {
    LowerBound bounds;
    std::array<std::vector<HeadBodyTail>, kResources> jobs;
    for (std::size_t i = 0; i < bodies_.size(); ++i) {
      Task const& task = problem_.tasks()[i];
      bounds.critical_path_s = std::max(bounds.critical_path_s, heads_[i] + task.seconds + tails_[i]);
      jobs[static_cast<std::size_t>(task.resource)].push_back({heads_[i], bodies_[i], tails_[i]});
    }
    for (std::size_t r = 0; r < jobs.size(); ++r) bounds.resource_s[r] = preemptive_bound(std::move(jobs[r]));
    if (contention > 0) bounds.contention_s = with_contention(contention);
    bounds.memory_s =
        memory_bound(problem_, {.bodies = bodies_, .spine = spine(), .contention = contention, .capacity = capacity});
    return bounds;
  }

 private:
  /// Computing tasks on the critical path, or some of them.
  std::vector<TaskId> spine() const {
    TaskId at_end = kNone;
    for (TaskId const task : problem_.order()) {
      if (problem_.after(task).empty() && (at_end == kNone || length_to(task) > length_to(at_end))) at_end = task;
    }
    std::vector<TaskId> all;
    for (TaskId task = at_end; task != kNone;) {
      if (problem_.task(task).resource == Resource::compute) all.push_back(task);
      TaskId longest = kNone;
      for (TaskId const earlier : problem_.before(task)) {
        if (longest == kNone || length_to(earlier) > length_to(longest)) longest = earlier;
      }
      task = longest;
    }
    std::vector<TaskId> some;
    std::size_t const most = std::max(kFewCuts, kOperatorsCut / std::max<std::size_t>(1, bodies_.size()));
    std::size_t const stride = all.size() / most + 1;
    for (std::size_t i = 0; i < all.size(); i += stride) some.push_back(all[i]);
    return some;
  }
  [[nodiscard]] double length_to(TaskId task) const { return heads_[at(task)] + problem_.task(task).seconds; }

  std::vector<double> paths(bool from_end) const {
    std::vector<double> longest(bodies_.size(), 0);
    auto const& order = problem_.order();
    for (std::size_t i = 0; i < order.size(); ++i) {
      TaskId const task = from_end ? order[order.size() - 1 - i] : order[i];
      double const with_it = longest[at(task)] + problem_.task(task).seconds;
      for (TaskId const next : from_end ? problem_.before(task) : problem_.after(task)) {
        longest[at(next)] = std::max(longest[at(next)], with_it);
      }
    }
    return longest;
  }

  /// Latencies stay in the bodies of the tasks of one longest path through each kind and group of collectives.
  void drop_latencies() {
    using Class = std::pair<CollectiveKind, GroupId>;
    std::map<Class, std::vector<TaskId>> classes;
    for (TaskId const task : problem_.order()) {
      if (!is_link(problem_.task(task).resource)) continue;
      auto const& collective = problem_.graph().ops[at(problem_.task(task).ops.front())].collective;
      classes[{collective.kind, collective.group}].push_back(task);
    }
    for (auto const& [kind, members] : classes) {
      std::vector<bool> is_member(bodies_.size(), false);
      for (TaskId const task : members) is_member[at(task)] = true;
      for (TaskId const task : members) bodies_[at(task)] -= problem_.task(task).latency_s;
      for (TaskId const task : longest_chain(is_member)) bodies_[at(task)] += problem_.task(task).latency_s;
    }
  }

  std::vector<TaskId> longest_chain(std::vector<bool> const& is_member) const {
    std::vector<int> count(bodies_.size(), 0);            // members on the longest path that ends with a task
    std::vector<TaskId> previous(bodies_.size(), kNone);  // member before it on that path
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

  /// Sending before anything can be computed, less what needs nothing that is sent; likewise after.
  double exposed(std::vector<double> const& sent, double contention) const {
    double least = -1;
    double free_computing = 0;
    for (std::size_t i = 0; i < bodies_.size(); ++i) {
      if (problem_.tasks()[i].resource != Resource::compute || bodies_[i] <= 0) continue;
      if (sent[i] <= 0) {
        free_computing += bodies_[i];
      } else {
        least = least < 0 ? sent[i] : std::min(least, sent[i]);
      }
    }
    return std::max(0.0, least - (1 + contention) * free_computing);
  }

  /// The longest sending on a path to each task (or from it).
  std::vector<double> sending(bool from_end) const {
    std::vector<double> longest(bodies_.size(), 0);
    auto const& order = problem_.order();
    for (std::size_t i = 0; i < order.size(); ++i) {
      TaskId const task = from_end ? order[order.size() - 1 - i] : order[i];
      double const with_it = longest[at(task)] + (is_link(problem_.task(task).resource) ? bodies_[at(task)] : 0);
      for (TaskId const next : from_end ? problem_.before(task) : problem_.after(task)) {
        longest[at(next)] = std::max(longest[at(next)], with_it);
      }
    }
    return longest;
  }

  double with_contention(double contention) const {
    std::array<double, kResources> busy{};
    for (std::size_t i = 0; i < bodies_.size(); ++i) {
      busy[static_cast<std::size_t>(problem_.tasks()[i].resource)] += bodies_[i];
    }
    double const computing = busy[static_cast<std::size_t>(Resource::compute)];
    // Two links can send at the same time: the busier one is sending for at least this long.
    auto const between = busy[static_cast<std::size_t>(Resource::between_hosts)];
    auto const within = busy[static_cast<std::size_t>(Resource::within_host)];
    double const sends = std::max(between, within);
    bool const one_link = std::min(between, within) <= 0;
    double const alone = one_link ? sending_alone(contention) : 0;
    double const overlap = std::max(0.0, sends - alone);
    if (computing * (1 + contention) < overlap) return sends;
    return alone + computing + contention / (1 + contention) * overlap;
  }

  /// What is sent before and after all that it can be hidden behind. The two are different times only where something
  /// is computed between: behind some sending, and before some.
  double sending_alone(double contention) const {
    auto const before = sending(false);
    auto const after = sending(true);
    double const head = exposed(before, contention);
    double const tail = exposed(after, contention);
    for (std::size_t i = 0; i < bodies_.size(); ++i) {
      bool const computes = problem_.tasks()[i].resource == Resource::compute && bodies_[i] > 0;
      if (computes && before[i] > 0 && after[i] > 0) return head + tail;
    }
    return std::max(head, tail);
  }

  Problem const& problem_;
  std::vector<double> bodies_;
  std::vector<double> heads_;
  std::vector<double> tails_;
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
  return std::max({critical_path_s, resources, contention_s});
}

double LowerBound::within_memory_s() const {
  return std::max(best_s(), memory_s);
}

LowerBound lower_bound(Problem const& problem, double contention, std::int64_t capacity) {
  return Bounds(problem).run(contention, capacity);
}

}  // namespace weft
