#include "scheduler/plan/memory_bound.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

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
    sent_ = std::max(between, within);
  }

  double at_cut(TaskId cut) const {
    auto const side = sides(cut);
    double sent_before = 0;
    double computed_before = 0;
    double computed_after = 0;
    double free = 0;                                              // sent at any time, without holding anything
    double held = 0;                                              // sent before only if what it brings is held
    double least_rate = std::numeric_limits<double>::infinity();  // bytes held per second of sending
    for (std::size_t i = 0; i < side.size(); ++i) {
      Task const& task = problem_.tasks()[i];
      double const body = terms_.bodies[i];
      if (task.resource == Resource::compute) {
        if (side[i] == Side::before) computed_before += body;
        if (side[i] == Side::after) computed_after += body;
      }
      if (task.resource != link_) continue;
      if (side[i] == Side::before) sent_before += body;
      if (side[i] != Side::neither || body <= 0) continue;
      auto const bytes = static_cast<double>(brings(static_cast<TaskId>(i), side));
      if (bytes > 0) {
        held += body;
        least_rate = std::min(least_rate, bytes / body);
      } else {
        free += body;
      }
    }
    auto const room = static_cast<double>(std::max<std::int64_t>(0, terms_.capacity - certainly_live(side)));
    double const early = free + (held > 0 ? std::min(held, room / least_rate) : 0);
    double const head = terms_.exposed.behind_head(cut) ? terms_.exposed.head.seconds : 0;
    double const tail = terms_.exposed.before_tail(cut) ? terms_.exposed.tail.seconds : 0;
    return best_split({sent_before, computed_before, head}, {sent_ - sent_before, computed_after, tail}, early);
  }

 private:
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

  [[nodiscard]] std::int64_t certainly_live(std::vector<Side> const& side) const {
    std::int64_t bytes = 0;
    for (auto const& storage : problem_.storages()) {
      bool const there = storage.first == kNone || side[at(storage.first)] == Side::before;
      bool const needed = storage.kept || std::any_of(storage.users.begin(), storage.users.end(),
                                                      [&](TaskId user) { return side[at(user)] == Side::after; });
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
  double sent_ = 0;
};

}  // namespace

double memory_bound(Problem const& problem, MemoryBoundTerms const& terms) {
  CutBound const bound(problem, terms);
  double best = 0;
  for (TaskId const cut : terms.cuts) best = std::max(best, bound.at_cut(cut));
  return best;
}

}  // namespace weft
