#include "weft_schedule/gaps.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "scheduler/graph/at.hpp"

namespace weft::schedule_tool {

namespace {

constexpr std::array<std::string_view, kGapCauses> kCauseNames = {"head", "tail", "dependency", "link busy",
                                                                  "held back"};

bool sends(Resource resource) {
  return resource == Resource::between_hosts || resource == Resource::within_host;
}

using Interval = std::pair<double, double>;

/// The union, disjoint, by rising begin.
template <typename Wanted>
std::vector<Interval> busy_times(Schedule const& schedule, Wanted const& wanted) {
  std::vector<Interval> all;
  for (auto const& launch : schedule.launches) {
    if (launch.end_s > launch.start_s && wanted(launch.resource)) all.emplace_back(launch.start_s, launch.end_s);
  }
  std::sort(all.begin(), all.end());
  std::vector<Interval> merged;
  for (auto const& [begin, end] : all) {
    if (!merged.empty() && begin <= merged.back().second) {
      merged.back().second = std::max(merged.back().second, end);
    } else {
      merged.emplace_back(begin, end);
    }
  }
  return merged;
}

class GapFinder {
 public:
  GapFinder(OpGraph const& graph, Schedule const& schedule)
      : graph_(graph), schedule_(schedule), writers_(writers_of(graph)), launch_of_(graph.ops.size(), nullptr) {
    for (auto const& launch : schedule.launches) {
      for (OpId const op : launch.ops) launch_of_[at(op)] = &launch;
      if (launch.end_s > launch.start_s) ends_.emplace(std::pair(launch.resource, launch.end_s), &launch);
      if (launch.resource == Resource::compute && launch.end_s > launch.start_s) computing_.push_back(&launch);
    }
    std::sort(computing_.begin(), computing_.end(),
              [](auto const* a, auto const* b) { return a->start_s < b->start_s; });
  }

  std::vector<Gap> run() const {
    auto const sent = busy_times(schedule_, sends);
    std::vector<Gap> gaps;
    std::size_t next_sent = 0;
    double now = 0;
    auto const add = [&](double until, Launch const* next) {
      if (until <= now) return;
      Gap gap{.begin_s = now, .end_s = until};
      explain(gap, next);
      while (next_sent < sent.size() && sent[next_sent].second <= now) ++next_sent;
      for (std::size_t i = next_sent; i < sent.size() && sent[i].first < until; ++i) {
        gap.exposed_s += std::min(until, sent[i].second) - std::max(now, sent[i].first);
      }
      gaps.push_back(gap);
    };
    for (Launch const* launch : computing_) {
      add(launch->start_s, launch);
      now = std::max(now, launch->end_s);
    }
    add(schedule_.makespan_s, nullptr);
    return gaps;
  }

 private:
  /// What the launch waits for, that ends last: none where it waits for nothing.
  Launch const* last_before(Launch const& launch) const {
    Launch const* last = nullptr;
    auto const look = [&](OpId earlier) {
      Launch const* other = launch_of_[at(earlier)];
      if (other != &launch && (last == nullptr || other->end_s > last->end_s)) last = other;
    };
    for (OpId const op : launch.ops) {
      for (OpId const earlier : graph_.ops[at(op)].after) look(earlier);
      for (TensorId const tensor : graph_.ops[at(op)].reads) {
        if (writers_[at(tensor)] != kNone) look(writers_[at(tensor)]);
      }
    }
    return last;
  }

  void explain(Gap& gap, Launch const* next) const {
    if (next == nullptr) {
      gap.cause = GapCause::tail;
      return;
    }
    gap.before = next->ops.front();
    Launch const* held_up = last_before(*next);
    // What took no time is not what was waited for.
    while (held_up != nullptr && held_up->end_s <= held_up->start_s && held_up->end_s >= next->start_s) {
      next = held_up;
      held_up = last_before(*next);
    }
    if (held_up != nullptr && held_up->end_s >= next->start_s) gap.waited_for = held_up->ops.front();
    gap.cause = gap.begin_s <= 0 ? GapCause::head : cause_of(next, held_up);
  }

  /// Why `next`, before which comes `held_up`, started no earlier.
  GapCause cause_of(Launch const* next, Launch const* held_up) const {
    if (held_up == nullptr || held_up->end_s < next->start_s) return GapCause::memory;
    Launch const* earlier = last_before(*held_up);
    if (earlier != nullptr && earlier->end_s >= held_up->start_s) return GapCause::dependency;
    if (held_up->start_s <= 0) return GapCause::dependency;
    bool const queued = ends_.count({held_up->resource, held_up->start_s}) > 0;
    return queued ? GapCause::link : GapCause::memory;
  }

  OpGraph const& graph_;
  Schedule const& schedule_;
  std::vector<OpId> writers_;
  std::vector<Launch const*> launch_of_;
  std::vector<Launch const*> computing_;
  std::map<std::pair<Resource, double>, Launch const*> ends_;
};

}  // namespace

std::string_view to_string(GapCause cause) noexcept {
  return kCauseNames[static_cast<std::size_t>(cause)];
}

std::vector<Gap> gaps_of(OpGraph const& graph, Schedule const& schedule) {
  return GapFinder(graph, schedule).run();
}

std::array<GapSum, kGapCauses> sums_of(std::vector<Gap> const& gaps) {
  std::array<GapSum, kGapCauses> sums{};
  for (auto const& gap : gaps) {
    GapSum& sum = sums[static_cast<std::size_t>(gap.cause)];
    sum.seconds += gap.end_s - gap.begin_s;
    sum.exposed_s += gap.exposed_s;
    ++sum.count;
  }
  return sums;
}

}  // namespace weft::schedule_tool
