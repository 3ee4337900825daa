#include "scheduler/plan/memory_bound.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/launch_growth.hpp"

namespace weft {

namespace {

/// So many cuts are looked at with launches.
constexpr std::size_t kLaunchCuts = 2;

/// What a task has to do with a cut.
enum class Side : unsigned char { neither, before, after };

class CutBound {
 public:
  CutBound(Problem const& problem, MemoryBoundTerms const& terms) : problem_(problem), terms_(terms) {
    std::array<double, kResources> busy{};
    for (std::size_t i = 0; i < terms.bodies.size(); ++i) {
      busy[static_cast<std::size_t>(problem.tasks()[i].resource)] += terms.bodies[i];
    }
    auto const between = busy[static_cast<std::size_t>(Resource::between_hosts)];
    auto const within = busy[static_cast<std::size_t>(Resource::within_host)];
    link_ = between >= within ? Resource::between_hosts : Resource::within_host;
  }

  /// With the latencies that no merging saves.
  [[nodiscard]] double at_cut(TaskId cut) const {
    Cut const here = around(cut, terms_.bodies);
    double const head = terms_.exposed.behind_head(cut) ? terms_.exposed.head.seconds : 0;
    double const tail = terms_.exposed.before_tail(cut) ? terms_.exposed.tail.seconds : 0;
    return best_split({here.sent_before, here.computed_before, head}, {here.sent_after, here.computed_after, tail},
                      here.early);
  }

  /// With so many launches as there are at the least before the cut and after it, and the waiting for them.
  [[nodiscard]] double with_launches(TaskId cut, LinkTerms const& link, LaunchGrowth const& first,
                                     LaunchGrowth const& last) const {
    Cut const here = around(cut, link.bodies);
    double least = std::numeric_limits<double>::infinity();
    auto const after = last.choices(last.needed(cut));
    for (LaunchChoice const& a : first.choices(first.needed(cut))) {
      for (LaunchChoice const& b : after) {
        Work const before_cut{here.sent_before + a.launches * link.latency_s, here.computed_before + a.idle_s, 0};
        Work const after_cut{here.sent_after + b.launches * link.latency_s, here.computed_after + b.idle_s, 0};
        least = std::min(least, best_split(before_cut, after_cut, here.early));
      }
    }
    return least;
  }

  [[nodiscard]] Resource link() const { return link_; }

 private:
  /// Seconds that what the cut needs takes, that all else takes, and what of the latter can be sent before it.
  struct Cut {
    double sent_before = 0;
    double sent_after = 0;
    double computed_before = 0;
    double computed_after = 0;
    double early = 0;
  };

  [[nodiscard]] Cut around(TaskId cut, std::vector<double> const& bodies) const {
    auto const side = sides(cut);
    Cut here;
    double held = 0;                                              // sent before only if what it brings is held
    double least_rate = std::numeric_limits<double>::infinity();  // bytes held per second of sending
    for (std::size_t i = 0; i < side.size(); ++i) {
      Task const& task = problem_.tasks()[i];
      if (task.resource == Resource::compute) {
        if (side[i] == Side::before) here.computed_before += task.seconds;
        if (side[i] == Side::after) here.computed_after += task.seconds;
      }
      if (task.resource != link_) continue;
      double const body = bodies[i];
      (side[i] == Side::before ? here.sent_before : here.sent_after) += body;
      if (side[i] != Side::neither || body <= 0) continue;
      auto const bytes = static_cast<double>(brings(static_cast<TaskId>(i), side));
      if (bytes > 0) {
        held += body;
        least_rate = std::min(least_rate, bytes / body);
      } else {
        here.early += body;
      }
    }
    auto const room = static_cast<double>(std::max<std::int64_t>(0, terms_.capacity - certainly_live(cut, side)));
    if (held > 0) here.early += std::min(held, room / least_rate);
    return here;
  }

  std::vector<Side> sides(TaskId cut) const {
    std::vector<Side> side(terms_.bodies.size(), Side::neither);
    auto const spread = [&](Side to, auto const& neighbours) {
      std::vector<TaskId> open{cut};
      while (!open.empty()) {
        TaskId const task = open.back();
        open.pop_back();
        for (TaskId const next : neighbours(task)) {
          if (side[at(next)] != Side::neither) continue;
          side[at(next)] = to;
          open.push_back(next);
        }
      }
    };
    side[at(cut)] = Side::before;
    spread(Side::before, [&](TaskId task) { return problem_.before(task); });
    spread(Side::after, [&](TaskId task) { return problem_.after(task); });
    return side;
  }

  /// Bytes that the task makes and that only what comes after the cut uses.
  [[nodiscard]] std::int64_t brings(TaskId task, std::vector<Side> const& side) const {
    std::int64_t bytes = 0;
    for (auto const id : problem_.uses(task)) {
      Storage const& storage = problem_.storages()[at(id)];
      if (storage.first != task || storage.users.size() < 2) continue;
      bool const later = std::all_of(storage.users.begin(), storage.users.end(),
                                     [&](TaskId user) { return user == task || side[at(user)] == Side::after; });
      if (later) bytes += storage.bytes;
    }
    return bytes;
  }

  /// Just before the cut's end: what the cut itself uses is still there.
  [[nodiscard]] std::int64_t certainly_live(TaskId cut, std::vector<Side> const& side) const {
    std::int64_t bytes = 0;
    for (auto const& storage : problem_.storages()) {
      bool const there = storage.first == kNone || side[at(storage.first)] == Side::before;
      bool const needed = storage.kept || std::any_of(storage.users.begin(), storage.users.end(), [&](TaskId user) {
                            return user == cut || side[at(user)] == Side::after;
                          });
      if (there && needed) bytes += storage.bytes;
    }
    return bytes;
  }

  /// Of one side of a cut.
  struct Work {
    double sent;
    double computed;
    double exposed;  ///< of what is sent
  };
  [[nodiscard]] double passes(Work const& work) const {
    double const s = terms_.contention;
    double const beside = work.sent - work.exposed;
    if (work.computed * (1 + s) < beside) return work.sent;
    return work.exposed + work.computed + s / (1 + s) * beside;
  }

  /// The least over what is sent early: the sum is convex in that, with kinks where sending and computing take equally
  /// long on one side.
  [[nodiscard]] double best_split(Work const& before, Work const& after, double most_early) const {
    double const slow = 1 + terms_.contention;
    double best = std::numeric_limits<double>::infinity();
    for (double early : {0.0, most_early, before.computed * slow - (before.sent - before.exposed),
                         after.sent - after.exposed - after.computed * slow}) {
      early = std::clamp(early, 0.0, most_early);
      best = std::min(best, passes({before.sent + early, before.computed, before.exposed}) +
                                passes({after.sent - early, after.computed, after.exposed}));
    }
    return best;
  }

  Problem const& problem_;
  MemoryBoundTerms const& terms_;
  Resource link_ = Resource::between_hosts;
};

}  // namespace

double memory_bound(Problem const& problem, MemoryBoundTerms const& terms) {
  CutBound const bound(problem, terms);
  std::vector<std::pair<double, TaskId>> cuts;
  cuts.reserve(terms.cuts.size());
  for (TaskId const cut : terms.cuts) cuts.emplace_back(bound.at_cut(cut), cut);
  std::stable_sort(cuts.begin(), cuts.end(), [](auto const& a, auto const& b) { return a.first > b.first; });
  double best = cuts.empty() ? 0 : cuts.front().first;
  LinkTerms const link = LinkTerms::of(problem, bound.link(), terms.contention);
  if (!link.has_launches()) return best;
  LaunchGrowth const first(problem, link, terms.path, false);
  LaunchGrowth const last(problem, link, terms.path, true);
  cuts.resize(std::min(cuts.size(), kLaunchCuts));
  for (auto const& [seconds, cut] : cuts) best = std::max(best, bound.with_launches(cut, link, first, last));
  return best;
}

}  // namespace weft
