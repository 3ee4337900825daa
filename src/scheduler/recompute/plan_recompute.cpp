#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/recompute/selection_search.hpp"
#include "weft/error.hpp"
#include "weft/recompute.hpp"

namespace weft {

namespace {

constexpr std::size_t kMostNamed = 4;
constexpr int kNarrowings = 5;

Recompute result_of(Rewritten rewritten) {
  return {.graph = std::move(rewritten.graph),
          .again = std::move(rewritten.again),
          .seconds = rewritten.seconds,
          .peak_bytes = rewritten.peak_bytes};
}

/// Names the largest memories that are live at the peak, and why each is.
std::string what_is_live(StepOrder const& step, Rewritten const& leanest) {
  struct Live {
    std::int64_t bytes;
    std::string text;
  };
  std::vector<Live> all;
  Problem const problem(leanest.graph, step.model());
  auto const peak = static_cast<TaskId>(leanest.peak_at);
  // In the rewritten graph the ids are the order.
  std::vector<TensorId> tensor_of(problem.storages().size(), kNone);
  for (auto const& storage : problem.storages()) {
    bool const there = storage.first == kNone || storage.first <= peak;
    bool const needed = storage.kept || (!storage.users.empty() && storage.users.back() >= peak);
    if (!there || !needed || storage.bytes == 0) continue;
    std::string why;
    bool const in_use = std::find(storage.users.begin(), storage.users.end(), peak) != storage.users.end();
    if (in_use) {
      why = "in use";
    } else if (storage.first == kNone) {
      why = "there from the beginning";
    } else if (storage.kept) {
      why = "kept";
    } else {
      OpId const writer = leanest.original[at(storage.first)];
      bool const second = leanest.second[at(storage.first)];
      why = second ? "made again by then" : std::string(words_for(step.obstacle(writer)));
      if (!second && step.may_repeat(writer)) why = "dropping it frees nothing elsewhere";
    }
    std::string const name = storage.first == kNone ? "" : leanest.graph.ops[at(storage.first)].name;
    all.push_back({storage.bytes, fmt::format("{} bytes{}{} ({})", storage.bytes, name.empty() ? "" : " that ",
                                              name.empty() ? "" : name + " makes", why)});
  }
  std::stable_sort(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.bytes > b.bytes; });
  std::string text;
  for (std::size_t i = 0; i < std::min(kMostNamed, all.size()); ++i) text += (i > 0 ? "; " : "") + all[i].text;
  if (all.size() > kMostNamed) text += fmt::format("; and {} more", all.size() - kMostNamed);
  return text;
}

/// Searches from two orders. The order of least memory is the better one where memory is most short, but may be
/// careless elsewhere; the order of ids is how the step was written.
class BudgetSearch {
 public:
  BudgetSearch(OpGraph const& graph, CostModel const& model, RecomputeOptions const& options)
      : options_(options),
        steps_{StepOrder(graph, model, options), StepOrder(graph, model, options, StepOrder::Base::ids)},
        searches_{SelectionSearch(steps_[0], options), SelectionSearch(steps_[1], options)} {}

  Recompute run() {
    std::optional<Recompute> best = run_all(options_.budget);
    if (!best) best = narrow();
    if (!best) refuse();
    best->peak_before = steps_[0].peak();
    return *std::move(best);
  }

 private:
  std::optional<Recompute> run_all(std::int64_t budget) {
    std::optional<Recompute> best;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (i > 0 && steps_[i].order() == steps_[0].order()) break;
      auto found = searches_[i].run(budget);
      if (!found || (best && best->seconds <= found->seconds)) continue;
      best = result_of(*std::move(found));
    }
    return best;
  }

  /// Finds the least budget for which there is a selection, between a budget that was missed and one that is known to
  /// be met. A search for less may still find a selection that fits the budget.
  std::optional<Recompute> narrow() {
    std::int64_t missed = options_.budget / 10 * 9;
    std::optional<Recompute> best;
    for (int i = 0; i < kNarrowings; ++i) {
      std::int64_t const least = leanest().peak_bytes;
      if (least - missed <= least / 200) break;
      std::int64_t const middle = missed + (least - missed) / 2;
      auto found = run_all(middle);
      if (!found) missed = middle;
      if (found && found->peak_bytes <= options_.budget) return found;
    }
    if (leanest().peak_bytes <= options_.budget) best = result_of(leanest());
    return best;
  }

  [[nodiscard]] std::size_t leaner() const {
    return searches_[1].leanest().peak_bytes < searches_[0].leanest().peak_bytes ? 1 : 0;
  }
  [[nodiscard]] Rewritten const& leanest() const { return searches_[leaner()].leanest(); }

  [[noreturn]] void refuse() const {
    Rewritten const& least = leanest();
    throw Error(ErrorCode::out_of_memory,
                fmt::format("graph {}: a budget of {} bytes is not met, whatever was run again: the least found is {}. "
                            "While {} runs, live are {}",
                            least.graph.name, options_.budget, least.peak_bytes, least.graph.ops[least.peak_at].name,
                            what_is_live(steps_[leaner()], least)));
  }

  RecomputeOptions const& options_;
  std::array<StepOrder, 2> steps_;
  std::array<SelectionSearch, 2> searches_;
};

void check(OpGraph const& graph, RecomputeOptions const& options) {
  check_graph(graph);
  if (options.budget < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("recompute: a budget of {} bytes", options.budget));
  }
}

}  // namespace

Recompute plan_recompute(OpGraph const& graph, CostModel const& model, RecomputeOptions const& options) {
  check(graph, options);
  return BudgetSearch(graph, model, options).run();
}

Recompute recompute_operators(OpGraph const& graph, CostModel const& model, std::vector<OpId> const& again,
                              RecomputeOptions const& options) {
  check(graph, options);
  StepOrder const step(graph, model, options);
  std::vector<double> shortage;
  for (auto const live : step.live()) {
    shortage.push_back(static_cast<double>(std::max<std::int64_t>(0, live - options.budget)));
  }
  Selection selection{std::vector<bool>(graph.ops.size(), false), late_places(step, shortage)};
  for (OpId const op : again) {
    if (op < 0 || at(op) >= graph.ops.size()) {
      throw Error(ErrorCode::invalid_argument, fmt::format("graph {}: there is no operator {}", graph.name, op));
    }
    if (!step.may_repeat(op)) {
      throw Error(ErrorCode::invalid_argument, fmt::format("graph {}: operator {} ({}) {}", graph.name, op,
                                                           graph.ops[at(op)].name, words_for(step.obstacle(op))));
    }
    selection.again[at(op)] = true;
  }
  auto rewritten = rewrite(step, std::move(selection), options.budget);
  if (!rewritten) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("graph {}: these operators cannot be run again without a cycle", graph.name));
  }
  Recompute result = result_of(*std::move(rewritten));
  result.peak_before = step.peak();
  return result;
}

}  // namespace weft
