#include "scheduler/plan/launch_sequence.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "random_graph.hpp"
#include "scheduler/graph/at.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/compute_orders.hpp"
#include "scheduler/plan/plan_maker.hpp"
#include "scheduler/plan/send_chain.hpp"
#include "scheduler/plan/sequence_search.hpp"
#include "weft/transformer_graph.hpp"

namespace weft {
namespace {

using test::random_graph;
using test::unit_cluster;

/// What is sent at some time: a launch of so many units, after so many segments have ended while the link was idle.
struct Decision {
  std::size_t waits = 0;
  bool gathers = false;
  std::size_t count = 0;
};

/// A small chain told by what it means: runs decisions step by step, each moment by itself.
struct TinyChain {
  struct Gather {
    double seconds;
    std::int64_t bytes;
    std::size_t use;       ///< the first segment that uses it
    std::size_t last_use;  ///< the last one
  };
  struct Reduction {
    double seconds;
    std::int64_t bytes;
    std::size_t made;  ///< by this segment
  };
  std::vector<double> segments{};
  std::vector<std::int64_t> held{};  ///< by a segment while it runs
  std::vector<Gather> gathers{};
  std::vector<Reduction> reductions{};
  double latency = 0;
  double contention = 0;
  std::int64_t capacity = 0;

  /// For best_launches().
  [[nodiscard]] SendChain chain() const {
    SendChain chain{.gather_latency_s = latency, .reduction_latency_s = latency};
    chain.gather_s = chain.reduction_s = {0};
    chain.gathered_bytes = chain.reduced_bytes = chain.made_bytes = {0};
    for (auto const& each : gathers) {
      chain.gathers.push_back({.seconds = each.seconds});
      chain.gather_s.push_back(chain.gather_s.back() + each.seconds);
      chain.gathered_bytes.push_back(chain.gathered_bytes.back() + each.bytes);
    }
    for (auto const& each : reductions) {
      chain.reductions.push_back({.seconds = each.seconds, .ready = each.made + 1});
      chain.reduction_s.push_back(chain.reduction_s.back() + each.seconds);
      chain.reduced_bytes.push_back(chain.reduced_bytes.back() + each.bytes);
      chain.made_bytes.push_back(0);
    }
    for (std::size_t i = 0; i < segments.size(); ++i) {
      ChainSegment segment{.seconds = segments[i]};
      for (auto const& each : gathers) {
        segment.needs += each.use <= i ? 1U : 0U;
        segment.freed_bytes += each.last_use < i ? each.bytes : 0;
      }
      for (auto const& each : reductions) {
        segment.before_bytes += each.made < i ? each.bytes : 0;
        segment.running_bytes += each.made <= i ? each.bytes : 0;
      }
      segment.running_bytes += held[i];
      chain.segments.push_back(segment);
    }
    return chain;
  }

  /// Seconds, or none where it gets stuck.
  [[nodiscard]] std::optional<double> run(std::vector<Decision> const& decisions) const {
    double now = 0;
    std::size_t segment = 0;
    double left = -1;
    std::size_t gathered = 0;
    std::size_t reduced = 0;
    std::size_t sending = 0;  // gathers that are sent
    auto const live = [&](bool runs) {
      std::int64_t bytes = runs ? held[segment] : 0;
      for (std::size_t i = 0; i < gathered + sending; ++i)
        bytes += gathers[i].last_use < segment ? 0 : gathers[i].bytes;
      for (std::size_t i = reduced; i < reductions.size(); ++i) {
        bytes += reductions[i].made < segment || (runs && reductions[i].made == segment) ? reductions[i].bytes : 0;
      }
      return bytes;
    };
    auto const starts = [&] {
      if (segment == segments.size()) return false;
      if (left >= 0) return true;
      for (std::size_t i = gathered; i < gathers.size(); ++i) {
        if (gathers[i].use <= segment) return false;
      }
      if (live(true) > capacity) return false;
      left = segments[segment];
      return true;
    };
    auto const compute = [&](double seconds, double slow) {  // as long as that
      double const end = now + seconds;
      while (now < end && starts()) {
        double const step = std::min(end - now, left * slow);
        now += step;
        left -= step / slow;
        if (left > 1e-9) continue;
        left = -1;
        ++segment;
      }
      now = end;
    };
    for (Decision const& each : decisions) {
      for (std::size_t i = 0; i < each.waits; ++i) {
        if (!starts()) return std::nullopt;
        compute(left, 1);
      }
      double seconds = latency;
      for (std::size_t i = 0; i < each.count; ++i) {
        std::size_t const unit = (each.gathers ? gathered : reduced) + i;
        if (unit >= (each.gathers ? gathers.size() : reductions.size())) return std::nullopt;
        if (!each.gathers && reductions[unit].made >= segment) return std::nullopt;
        seconds += each.gathers ? gathers[unit].seconds : reductions[unit].seconds;
      }
      if (each.gathers) sending = each.count;
      if (segment < segments.size() && live(left >= 0) > capacity) return std::nullopt;
      compute(seconds, 1 + contention);
      (each.gathers ? gathered : reduced) += each.count;
      sending = 0;
    }
    if (gathered < gathers.size() || reduced < reductions.size()) return std::nullopt;
    while (starts()) compute(left, 1);
    if (segment < segments.size()) return std::nullopt;
    return now;
  }

  /// The shortest of all decisions.
  [[nodiscard]] double shortest() const {
    std::vector<Decision> decisions;
    double best = std::numeric_limits<double>::infinity();
    decide(decisions, 0, 0, 0, best);
    return best;
  }

 private:
  void decide(std::vector<Decision>& decisions, std::size_t gathered, std::size_t reduced, std::size_t waited,
              double& best) const {
    if (gathered == gathers.size() && reduced == reductions.size()) {
      best = std::min(best, run(decisions).value_or(best));
      return;
    }
    for (std::size_t waits = 0; waited + waits <= segments.size(); ++waits) {
      for (std::size_t count = 1; gathered + count <= gathers.size(); ++count) {
        decisions.push_back({waits, true, count});
        decide(decisions, gathered + count, reduced, waited + waits, best);
        decisions.pop_back();
      }
      for (std::size_t count = 1; reduced + count <= reductions.size(); ++count) {
        decisions.push_back({waits, false, count});
        decide(decisions, gathered, reduced + count, waited + waits, best);
        decisions.pop_back();
      }
    }
  }
};

TinyChain random_chain(std::mt19937& random) {
  auto const up_to = [&](std::size_t n) { return random() % (n + 1); };
  TinyChain tiny{.latency = static_cast<double>(up_to(3)) / 2, .contention = static_cast<double>(up_to(2)) / 4};
  std::size_t const segments = 2 + up_to(2);
  for (std::size_t i = 0; i < segments; ++i) {
    tiny.segments.push_back(1 + static_cast<double>(up_to(6)));
    tiny.held.push_back(static_cast<std::int64_t>(up_to(3)));
  }
  std::vector<std::size_t> uses;
  for (std::size_t i = 0; i < 1 + up_to(2); ++i) uses.push_back(up_to(segments - 1));
  std::sort(uses.begin(), uses.end());
  for (std::size_t const use : uses) {
    auto const bytes = 1 + up_to(4);
    tiny.gathers.push_back(
        {static_cast<double>(bytes), static_cast<std::int64_t>(bytes), use, std::min(segments - 1, use + up_to(1))});
  }
  std::vector<std::size_t> makers;
  for (std::size_t i = 0; i < up_to(2); ++i) makers.push_back(up_to(segments - 1));
  std::sort(makers.begin(), makers.end());
  for (std::size_t const maker : makers) {
    auto const bytes = 1 + up_to(4);
    tiny.reductions.push_back({static_cast<double>(bytes), static_cast<std::int64_t>(bytes), maker});
  }
  tiny.capacity = static_cast<std::int64_t>(6 + up_to(12));
  return tiny;
}

TEST(LaunchSequence, IsTheShortestOfAll) {
  std::mt19937 random(61);
  int found = 0;
  int stuck = 0;
  for (int round = 0; round < 300; ++round) {
    TinyChain const tiny = random_chain(random);
    double const shortest = tiny.shortest();
    auto const sequence = best_launches(tiny.chain(), {.capacity = tiny.capacity,
                                                       .contention = tiny.contention,
                                                       .below_s = 1e9,
                                                       .most_states = 1000,
                                                       .size_growth = 1,
                                                       .memory_slack = 0});
    ASSERT_EQ(sequence.has_value(), shortest < 1e9) << "round " << round;
    if (!sequence) {
      ++stuck;
      continue;
    }
    ++found;
    EXPECT_NEAR(sequence->seconds, shortest, 1e-6) << "round " << round;
    EXPECT_FALSE(best_launches(tiny.chain(), {.capacity = tiny.capacity,
                                              .contention = tiny.contention,
                                              .below_s = shortest,
                                              .most_states = 1000,
                                              .size_growth = 1,
                                              .memory_slack = 0}));
  }
  EXPECT_GT(found, 150);
  EXPECT_GT(stuck, 5);
}

/// Llama's step in small, its parameters sharded: a collective for each tensor.
OpGraph sharded_step() {
  TransformerShape shape = transformer_preset("llama2-7b");
  shape.layers = 6;
  return transformer_graph(shape, {.strategy = TrainingStrategy::zero3, .data_ranks = 32, .merged = false});
}

TEST(SendChain, CountsWhatTheSerialOrderHolds) {
  OpGraph const graph = sharded_step();
  CostModel const model(cluster_named("a100-400g"));
  Problem const problem(graph, model);
  auto const order = low_memory_order(problem);
  auto const live = serial_live(problem, order);
  auto const chain = send_chain(problem, order, {.gathers = 1U << 30, .reductions = 1U << 30});
  ASSERT_TRUE(chain.has_value());
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = i;
  auto const sent_before = [&](std::vector<ChainUnit> const& units, std::size_t where) {
    std::size_t sent = 0;
    while (sent < units.size() && place[at(units[sent].tasks.back())] < where) ++sent;
    return sent;
  };
  for (ChainSegment const& segment : chain->segments) {
    std::int64_t most = 0;
    for (TaskId const task : segment.tasks) most = std::max(most, live[place[at(task)]]);
    std::size_t const where = place[at(segment.tasks.front())];
    std::size_t const reduced = sent_before(chain->reductions, where);
    std::int64_t const counted = segment.running_bytes + chain->gathered_bytes[sent_before(chain->gathers, where)] -
                                 segment.freed_bytes - chain->reduced_bytes[reduced];
    // Shards of gradients that updates still wait for are left out.
    auto const& name = graph.ops[at(problem.task(segment.tasks.front()).ops.front())].name;
    EXPECT_LE(counted, most) << name;
    EXPECT_GE(counted, most - chain->made_bytes[reduced]) << name;
  }
  EXPECT_GT(chain->made_bytes.back(), 0);
}

TEST(SequenceSearch, PlansRunAsLongAsTheirSequence) {
  OpGraph const graph = sharded_step();
  CostModel const model(cluster_named("a100-400g"));
  Problem const unmerged(graph, model);
  std::int64_t const least = serial_peak(unmerged, low_memory_order(unmerged));
  for (std::int64_t const more : {500, 1000, 3000}) {
    PlanMaker const planner(graph, model, least + more * 1'000'000, 0.1);
    Plan const asap = planner.run(planner.draft({}));
    auto const found = search_sequence(planner.unmerged(), asap.run.started,
                                       {.capacity = planner.capacity(),
                                        .contention = planner.contention(),
                                        .below_s = asap.run.makespan_s,
                                        .most_orders = 6});
    ASSERT_TRUE(found.has_value()) << more;
    EXPECT_GT(found->merged.launches.size(), 3U);
    Plan const plan = planner.run(planner.draft({.merged = std::make_shared<Merged const>(found->merged)}));
    ASSERT_TRUE(plan.problem && plan.run.complete) << more;
    EXPECT_LE(plan.run.peak_bytes, planner.capacity());
    EXPECT_NEAR(plan.run.makespan_s, found->seconds, 0.01 * found->seconds) << more;
    EXPECT_LT(plan.run.makespan_s, asap.run.makespan_s) << more;
  }
}

TEST(SendChain, IsNoneWhereNothingOrSeveralThingsAreSent) {
  OpGraph graph{.name = "none"};
  graph.add(OpNode{.name = "op", .flops = 3});
  CostModel const model(unit_cluster());
  EXPECT_FALSE(send_chain(Problem(graph, model), {0}));
  GroupId const some = graph.add(OpGroup{.name = "some", .sets = {{0, 1}}});
  GroupId const others = graph.add(OpGroup{.name = "others", .sets = {{0, 2}, {1, 3}}});
  for (GroupId const group : {some, others}) {
    graph.add(
        OpNode{.name = "send", .kind = OpKind::collective, .collective = {CollectiveKind::reduce_scatter, 8, group}});
  }
  EXPECT_FALSE(send_chain(Problem(graph, model), {0, 1, 2}));
}

bool waits_for(Problem const& problem, TaskId task, TaskId earlier) {
  if (task == earlier) return true;
  auto const before = problem.before(task);
  return std::any_of(before.begin(), before.end(), [&](TaskId each) { return waits_for(problem, each, earlier); });
}

TEST(ComputeOrders, AreLegal) {
  std::mt19937 random(62);
  for (int round = 0; round < 200; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 5 + random() % 40, .collectives = 0.4});
    CostModel const model(unit_cluster());
    Problem const problem(graph, model);
    auto const& order = problem.order();
    std::size_t const begin = random() % order.size();
    TaskId const wanted = order[begin + random() % (order.size() - begin)];
    auto const pulled = pulled_forward(problem, order, begin, wanted);
    EXPECT_TRUE(std::equal(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(begin), pulled.begin()));
    // All that stands before `behind` and does not wait for it comes first.
    TaskId const late = order[begin];
    std::size_t const behind = begin + random() % (order.size() - begin);
    auto const pushed = pushed_back(problem, order, late, behind);
    EXPECT_TRUE(std::equal(order.begin() + static_cast<std::ptrdiff_t>(behind) + 1, order.end(),
                           pushed.begin() + static_cast<std::ptrdiff_t>(behind) + 1));
    auto const last_that_stays = std::find_if(order.rend() - static_cast<std::ptrdiff_t>(behind) - 1, order.rend(),
                                              [&](TaskId task) { return !waits_for(problem, task, late); });
    if (last_that_stays != order.rend() && *last_that_stays != late) {
      EXPECT_GT(std::find(pushed.begin(), pushed.end(), late),
                std::find(pushed.begin(), pushed.end(), *last_that_stays))
          << "round " << round;
    }
    for (auto const& moved : {gradients_first(problem, order), pulled, pushed}) {
      std::vector<std::size_t> place(order.size(), order.size());
      for (std::size_t i = 0; i < moved.size(); ++i) place[at(moved[i])] = i;
      for (TaskId const task : order) {
        ASSERT_LT(place[at(task)], order.size()) << "round " << round;
        for (TaskId const earlier : problem.before(task)) {
          EXPECT_LT(place[at(earlier)], place[at(task)]) << "round " << round;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
