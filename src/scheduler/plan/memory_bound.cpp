#include "scheduler/plan/memory_bound.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/cut_sides.hpp"
#include "scheduler/plan/launch_growth.hpp"
#include "scheduler/plan/launches_behind.hpp"
#include "scheduler/plan/released_memory.hpp"

namespace weft {

namespace {

/// The number of cuts at which launches are counted.
constexpr std::size_t kLaunchCuts = 2;
/// Only in graphs of up to this many tasks it is counted how memory keeps launches small: with this many it takes half
/// a second.
constexpr std::size_t kMostTasksInMemory = 3'000;
/// How much is held, and for how long the link is idle, is tried in these steps, as parts of a latency; beyond them in
/// larger and larger ones.
constexpr std::array kFineSteps = {0.0, 0.0625, 0.125, 0.25};
constexpr double kStep = 0.5;
constexpr double kEvenSteps = 8;
constexpr double kStepGrowth = 1.15;
constexpr double kMostSteps = 100;

/// Rising, from 0.
std::vector<double> steps_of(double latency_s) {
  std::vector<double> steps;
  for (double const fine : kFineSteps) steps.push_back(fine * latency_s);
  for (double step = kStep; step < kMostSteps; step = step < kEvenSteps ? step + kStep : step * kStepGrowth) {
    steps.push_back(step * latency_s);
  }
  return steps;
}

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

  /// The bound at a cut, with the latencies that no merging saves.
  [[nodiscard]] double at_cut(TaskId cut) const {
    Cut const here = around(cut, terms_.bodies);
    double const head = terms_.exposed.behind_head(cut) ? terms_.exposed.head.seconds : 0;
    double const tail = terms_.exposed.before_tail(cut) ? terms_.exposed.tail.seconds : 0;
    return best_split({here.sent_before, here.computed_before, head}, {here.sent_after, here.computed_after, tail},
                      here.early);
  }

  /// The bound at a cut, with the launches that are needed at the least before the cut and after it, and the waiting
  /// for them.
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

  /// The same, but with the launches behind the cut that memory allows.
  [[nodiscard]] double with_launches_in_memory(TaskId cut, LinkTerms const& link, LaunchGrowth const& first,
                                               LaunchGrowth const& last) const {
    auto const side = sides_of(problem_, cut);
    ReleasedMemory released(problem_, link, side);
    if (released.gathers_s() <= 0) return 0;
    double const held = room(certainly_live(cut, side)) / released.rate();
    if (held >= released.gathers_s()) return 0;  // memory is no limit
    released.find();
    double const room_s = static_cast<double>(terms_.capacity - released.live_bytes()) / released.rate();
    LaunchesBehind const behind(released, link, last, room_s);
    return InMemory{*this, around(cut, link.bodies), first.choices(first.needed(cut)), link.latency_s,
                    released.others_early_s()}
        .least(behind, held, released.steps());
  }

  /// The first of the cuts at which most is live for certain.
  [[nodiscard]] TaskId fullest(std::vector<TaskId> const& cuts) const {
    TaskId fullest = kNone;
    std::int64_t most = -1;
    for (TaskId const cut : cuts) {
      std::int64_t const live = certainly_live(cut, sides_of(problem_, cut));
      if (live > most) fullest = cut;
      most = std::max(most, live);
    }
    return fullest;
  }

  [[nodiscard]] Resource link() const { return link_; }

 private:
  /// Seconds sent and computed that the cut needs (before), all others (after), and `early`: seconds of sending among
  /// the latter that can be done before the cut.
  struct Cut {
    double sent_before = 0;
    double sent_after = 0;
    double computed_before = 0;
    double computed_after = 0;
    double early = 0;
  };

  [[nodiscard]] Cut around(TaskId cut, std::vector<double> const& bodies) const {
    auto const side = sides_of(problem_, cut);
    Cut here;
    double held = 0;  // seconds that can be sent before the cut only if what they bring is held
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
      auto const bytes = static_cast<double>(brings(problem_, static_cast<TaskId>(i), side));
      if (bytes > 0) {
        held += body;
        least_rate = std::min(least_rate, bytes / body);
      } else {
        here.early += body;
      }
    }
    if (held > 0) here.early += std::min(held, room(certainly_live(cut, side)) / least_rate);
    return here;
  }

  [[nodiscard]] double room(std::int64_t live) const {
    return static_cast<double>(std::max<std::int64_t>(0, terms_.capacity - live));
  }

  /// Bytes that are live for certain just before the cut's end, when what the cut itself uses is still there.
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

  /// The work on one side of a cut, in seconds.
  struct Work {
    double sent;
    double computed;
    double exposed;        ///< the part of `sent` beside which nothing can be computed
    double link_idle = 0;  ///< for how long the link is idle besides
  };
  [[nodiscard]] double passes(Work const& work) const {
    double const s = terms_.contention;
    double const computing = work.exposed + work.computed + s / (1 + s) * (work.sent - work.exposed);
    return std::max(work.sent + work.link_idle, computing);
  }
  /// The seconds of sending with which sending and computing take equally long.
  [[nodiscard]] double balanced(Work const& work) const {
    return work.exposed + (work.computed - work.link_idle) * (1 + terms_.contention);
  }

  /// The least time over all that can be sent early: the sum is convex in that, with kinks where sending and computing
  /// take equally long on one side.
  [[nodiscard]] double best_split(Work const& before, Work const& after, double most_early) const {
    double best = std::numeric_limits<double>::infinity();
    for (double early : {0.0, most_early, balanced(before) - before.sent, after.sent - balanced(after)}) {
      early = std::clamp(early, 0.0, most_early);
      Work earlier = before;
      Work later = after;
      earlier.sent += early;
      later.sent -= early;
      best = std::min(best, passes(earlier) + passes(later));
    }
    return best;
  }

  /// The least time over how much is held at the cut's end, and over how long the link is idle behind it.
  struct InMemory {
    CutBound const& bound;
    Cut here;
    std::vector<LaunchChoice> first;
    double latency_s;
    double others_early_s;

    [[nodiscard]] double least(LaunchesBehind const& behind, double most_held, std::vector<double> steps) const {
      auto const rooms = steps_of(latency_s);
      steps.insert(steps.end(), rooms.begin(), rooms.end());
      std::sort(steps.begin(), steps.end());
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t room = 0; room < rooms.size() && rooms[room] <= most_held; ++room) {
        bool const all = room + 1 == rooms.size();
        double const held = all ? 0 : std::max(0.0, most_held - rooms[room + 1]);
        double const sent = most_held - rooms[room];
        for (std::size_t i = 0; i < steps.size(); ++i) {
          if (takes(sent, steps[i], {}) >= least) continue;
          // After that much time everything has been computed.
          double const until = i + 1 < steps.size() ? steps[i + 1] : steps[i] + here.computed_after;
          for (LaunchesLeft const& left : behind.choices(held, sent, until)) {
            least = std::min(least, takes(sent, steps[i], left));
          }
        }
      }
      return least;
    }

    [[nodiscard]] double takes(double sent_early, double link_idle, LaunchesLeft const& left) const {
      double least = std::numeric_limits<double>::infinity();
      for (LaunchChoice const& each : first) {
        Work const before{here.sent_before + each.launches * latency_s, here.computed_before + each.idle_s, 0};
        Work const after{here.sent_after + left.launches * latency_s, here.computed_after + left.idle_s, 0, link_idle};
        least = std::min(least, bound.best_split(before, after, sent_early + others_early_s));
      }
      return least;
    }
  };

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
  if (problem.tasks().size() > kMostTasksInMemory || terms.cuts.empty()) return best;
  return std::max(best, bound.with_launches_in_memory(bound.fullest(terms.cuts), link, first, last));
}

}  // namespace weft
