#include "weft_schedule/advice.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/range_max.hpp"

namespace weft::schedule_tool {

namespace {

constexpr std::size_t kMostTried = 20'000;  ///< operators of a graph for which settings near the plan's are tried
constexpr double kShorter = 1 - 1e-6;

/// Half of the sum of all is in ones of at least this size.
std::int64_t weighted_median(std::vector<std::int64_t> sizes) {
  std::sort(sizes.rbegin(), sizes.rend());
  std::int64_t total = 0;
  for (auto const size : sizes) total += size;
  std::int64_t passed = 0;
  for (auto const size : sizes) {
    passed += size;
    if (2 * passed >= total) return size;
  }
  return 0;
}

bool gathers_weights(OpNode const& op) {
  return op.kind == OpKind::collective && op.collective.kind == CollectiveKind::all_gather;
}

/// Gradients.
bool sums(OpNode const& op) {
  return op.kind == OpKind::collective &&
         (op.collective.kind == CollectiveKind::reduce_scatter || op.collective.kind == CollectiveKind::all_reduce);
}

class Adviser {
 public:
  Adviser(OpGraph const& graph, Schedule const& schedule)
      : graph_(graph), schedule_(schedule), place_(graph.ops.size()), readers_(graph.tensors.size()) {
    for (std::size_t i = 0; i < schedule.launches.size(); ++i) {
      for (OpId const op : schedule.launches[i].ops) place_[at(op)] = i;
    }
    std::set<std::vector<TensorId>> gathered;
    for (std::size_t op = 0; op < graph.ops.size(); ++op) {
      OpNode const& node = graph.ops[op];
      for (TensorId const tensor : node.reads) readers_[at(tensor)].push_back(static_cast<OpId>(op));
      if (gathers_weights(node) && gathered.insert(node.reads).second) most_.gather_bytes += node.collective.bytes;
      if (sums(node)) most_.reduction_bytes += node.collective.bytes;
    }
  }

  Advice run(TrySettings const& attempt, IsOver const& is_over) const {
    Advice advice;
    advice.settings = settings_of_plan(advice);
    if (advice.gathers || advice.reduces) {
      advice.single_s = attempt({}).value_or(schedule_.makespan_s);
      try_settings(advice, attempt, is_over);
    }
    if (advice.gathers) advice.layers_a_gather = layers_in(advice.settings.gather_bytes);
    keep_layers(advice);
    return advice;
  }

 private:
  /// And whether there is anything to set.
  ScheduleSettings settings_of_plan(Advice& advice) const {
    std::vector<std::int64_t> gathers;
    std::vector<std::int64_t> reductions;
    for (auto const& launch : schedule_.launches) {
      auto const& first = graph_.ops[at(launch.ops.front())];
      if (first.kind != OpKind::collective) continue;
      std::int64_t bytes = 0;
      for (OpId const op : launch.ops) bytes += graph_.ops[at(op)].collective.bytes;
      if (gathers_weights(first)) gathers.push_back(bytes);
      if (sums(first)) reductions.push_back(bytes);
    }
    advice.gathers = !gathers.empty();
    advice.reduces = !reductions.empty();
    // A launch may gather for forward and for backward, which is more than there is to gather at a time.
    return {.gather_bytes = std::min(weighted_median(std::move(gathers)), most_.gather_bytes),
            .reduction_bytes = weighted_median(std::move(reductions)),
            .prefetch_depth = std::max(1, prefetch_depth())};
  }

  /// One setting after another, from the plan's, as long as that makes the step shorter.
  void try_settings(Advice& advice, TrySettings const& attempt, IsOver const& is_over) const {
    ScheduleSettings best = advice.settings;
    double least = attempt(best).value_or(std::numeric_limits<double>::infinity());
    bool const few = graph_.ops.size() <= kMostTried;
    for (ScheduleSettings from{}; few && from != best;) {
      from = best;
      for (ScheduleSettings const& other : near(from, advice)) {
        if (is_over()) continue;
        auto const seconds = attempt(other);
        if (!seconds || *seconds >= least * kShorter) continue;
        best = other;
        least = *seconds;
      }
    }
    if (advice.single_s * kShorter <= least) {  // nothing is gained by them
      best = {};
      least = advice.single_s;
    }
    advice.settings = best;
    advice.settings_s = least;
  }

  [[nodiscard]] std::vector<ScheduleSettings> near(ScheduleSettings const& from, Advice const& advice) const {
    std::vector<ScheduleSettings> all;
    auto const add = [&](auto const& change) {
      ScheduleSettings other = from;
      change(other);
      if (other != from) all.push_back(other);
    };
    for (int const divisor : {2, 4}) {
      if (advice.gathers) add([&](auto& other) { other.gather_bytes /= divisor; });
      if (advice.reduces) add([&](auto& other) { other.reduction_bytes /= divisor; });
    }
    if (advice.gathers) {
      add([&](auto& other) { other.gather_bytes = std::min(2 * other.gather_bytes, most_.gather_bytes); });
    }
    if (advice.reduces) {
      add([&](auto& other) { other.reduction_bytes = std::min(2 * other.reduction_bytes, most_.reduction_bytes); });
    }
    for (int const depth : {1, 2, 3, 4}) add([&](auto& other) { other.prefetch_depth = depth; });
    return all;
  }

  /// Layers whose gathers have so many bytes together, at a time.
  [[nodiscard]] double layers_in(std::int64_t bytes) const {
    std::map<int, std::int64_t> of_layer;
    std::map<int, std::set<std::vector<TensorId>>> seen;
    for (auto const& op : graph_.ops) {
      if (gathers_weights(op) && op.layer != kNone && seen[op.layer].insert(op.reads).second)
        of_layer[op.layer] += op.collective.bytes;
    }
    std::vector<std::int64_t> sizes;
    for (auto const& [layer, size] : of_layer) sizes.push_back(size);
    auto const one = static_cast<double>(weighted_median(std::move(sizes)));
    return one > 0 ? static_cast<double>(bytes) / one : 0;
  }

  [[nodiscard]] bool is_gather(Launch const& launch) const {
    return gathers_weights(graph_.ops[at(launch.ops.front())]);
  }

  /// The launches that use what an operator wrote; as {first, last}, its own place where none does.
  [[nodiscard]] std::pair<std::size_t, std::size_t> uses_of(OpId op) const {
    std::size_t first = schedule_.launches.size();
    std::size_t last = place_[at(op)];
    for (TensorId const tensor : graph_.ops[at(op)].writes) {
      for (OpId const reader : readers_[at(tensor)]) {
        first = std::min(first, place_[at(reader)]);
        last = std::max(last, place_[at(reader)]);
      }
    }
    return {std::min(first, last), last};
  }

  [[nodiscard]] int prefetch_depth() const {
    std::multiset<std::size_t> unused;  // first uses of the gathers that have started
    std::vector<int> ahead;
    for (std::size_t i = 0; i < schedule_.launches.size(); ++i) {
      if (!is_gather(schedule_.launches[i])) continue;
      unused.erase(unused.begin(), unused.lower_bound(i));
      ahead.push_back(static_cast<int>(unused.size()));
      std::size_t first = schedule_.launches.size();
      for (OpId const op : schedule_.launches[i].ops) first = std::min(first, uses_of(op).first);
      unused.insert(first);
    }
    if (ahead.empty()) return 0;
    auto const middle = ahead.begin() + static_cast<std::ptrdiff_t>(ahead.size() / 2);
    std::nth_element(ahead.begin(), middle, ahead.end());
    return *middle;
  }

  struct Again {
    std::size_t begin;  ///< launch of the last use of what was gathered first
    std::size_t end;    ///< launch of the second gather
    std::int64_t bytes;
    int layer;
    OpId op;  ///< that could be saved
  };

  /// Gathers of a shard that was gathered before, those first between which least time passes.
  [[nodiscard]] std::vector<Again> gathered_again() const {
    std::map<std::vector<TensorId>, OpId> seen;
    std::vector<Again> pairs;
    for (auto const& launch : schedule_.launches) {
      if (!is_gather(launch)) continue;
      for (OpId const op : launch.ops) {
        auto const& node = graph_.ops[at(op)];
        auto const [earlier, is_new] = seen.emplace(node.reads, op);
        if (is_new) continue;
        pairs.push_back({uses_of(earlier->second).second, place_[at(op)], node.collective.bytes, node.layer, op});
        earlier->second = op;
      }
    }
    std::sort(pairs.begin(), pairs.end(),
              [](Again const& a, Again const& b) { return a.end - a.begin < b.end - b.begin; });
    return pairs;
  }

  void keep_layers(Advice& advice) const {
    RangeMax live(static_cast<std::int32_t>(schedule_.launches.size()));
    for (std::int32_t i = 0; auto const& launch : schedule_.launches) {
      live.add(i, i + 1, launch.live_bytes);
      ++i;
    }
    std::set<int> layers;
    for (Again const& pair : gathered_again()) {
      if (pair.layer == kNone || pair.end <= pair.begin) continue;
      auto const begin = static_cast<std::int32_t>(pair.begin);
      auto const end = static_cast<std::int32_t>(pair.end);
      if (live.max(begin, end) + pair.bytes > schedule_.capacity) continue;
      live.add(begin, end, pair.bytes);
      layers.insert(pair.layer);
      Launch const& launch = schedule_.launches[pair.end];
      advice.kept_saves_s += (launch.end_s - launch.start_s) / static_cast<double>(launch.ops.size());
    }
    advice.kept_layers.assign(layers.begin(), layers.end());
  }

  OpGraph const& graph_;
  Schedule const& schedule_;
  std::vector<std::size_t> place_;  ///< the launch of each operator
  std::vector<std::vector<OpId>> readers_;
  ScheduleSettings most_{};  ///< all that can be sent at a time
};

}  // namespace

Advice advice_from(OpGraph const& graph, Schedule const& schedule, TrySettings const& attempt, IsOver const& is_over) {
  return Adviser(graph, schedule).run(attempt, is_over);
}

}  // namespace weft::schedule_tool
