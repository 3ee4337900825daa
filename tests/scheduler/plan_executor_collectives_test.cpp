// Every kind of collective in a plan, over all ranks and over pairs of them, alone and merged with others.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/ranks.hpp"
#include "scheduler/small_step.hpp"
#include "weft/fixed_schedule.hpp"

namespace weft::test {
namespace {

constexpr int kRanks = 4;
constexpr int kSteps = 5;

/// Whole numbers, exact in f32, of which no two ranks, collectives or places have the same.
float value(int rank, std::size_t collective, int step, std::size_t i) {
  return static_cast<float>(1000 * rank + 100 * static_cast<int>(collective) + 7 * step + static_cast<int>(i % 50));
}

struct Sent {
  CollectiveKind kind;
  bool pairs;  ///< among ranks {0, 1} and {2, 3} rather than all
  std::size_t count;
  int root = 0;
  ReduceOp op = ReduceOp::sum;
};

/// Twice of each kind, so that there is something to merge; broadcasts from two roots, sums and maxima.
std::vector<Sent> all_kinds() {
  std::vector<Sent> all;
  for (bool const pairs : {false, true}) {
    all.push_back({CollectiveKind::all_reduce, pairs, 1001});
    all.push_back({CollectiveKind::all_reduce, pairs, 70'003, 0, ReduceOp::max});
    all.push_back({CollectiveKind::reduce_scatter, pairs, 400});
    all.push_back({CollectiveKind::reduce_scatter, pairs, 80'004});
    all.push_back({CollectiveKind::all_gather, pairs, 1200});
    all.push_back({CollectiveKind::all_gather, pairs, 64});
    all.push_back({CollectiveKind::broadcast, pairs, 333, 1});
    all.push_back({CollectiveKind::broadcast, pairs, 90'000, 0});
    all.push_back({CollectiveKind::all_to_all, pairs, 804});
    all.push_back({CollectiveKind::all_to_all, pairs, 40'000});
  }
  return all;
}

/// Fills each collective's memory, sends it, and looks at what came.
class Step {
 public:
  Step(Communicator& world, Communicator& pair) : rank_(world.rank()) {
    graph.name = "all kinds";
    GroupId const everybody = graph.add(OpGroup{"all", {{0, 1, 2, 3}}});
    GroupId const pairs = graph.add(OpGroup{"pairs", {{0, 1}, {2, 3}}});
    std::vector<OpId> fills;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      fills.push_back(add({.name = "fill" + std::to_string(i), .memory_bytes = 1e5}, [this, i] { fill(i); }));
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
      auto const bytes = static_cast<std::int64_t>(sent[i].count * sizeof(float));
      collectives.push_back(graph.add(OpNode{.name = "send" + std::to_string(i),
                                             .kind = OpKind::collective,
                                             .collective = {sent[i].kind, bytes, sent[i].pairs ? pairs : everybody},
                                             .after = {fills[i]}}));
      bindings.push_back({.run = {}, .count = sent[i].count, .op = sent[i].op, .root = sent[i].root});
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
      add({.name = "look" + std::to_string(i), .memory_bytes = 1e5, .after = {collectives[i]}}, [this, i] { look(i); });
    }
    groups = {&world, &pair};
  }

  std::vector<Sent> const sent = all_kinds();
  OpGraph graph;
  std::vector<OpBinding> bindings;
  std::vector<Communicator*> groups;
  std::vector<OpId> collectives;
  PlanExecutor* executor = nullptr;
  int step = 0;
  int looked = 0;

 private:
  OpId add(OpNode node, std::function<void()> run) {
    bindings.push_back({.run = std::move(run)});
    return graph.add(std::move(node));
  }

  [[nodiscard]] float* data(std::size_t i) const { return static_cast<float*>(executor->buffer(collectives[i]).data); }
  [[nodiscard]] int ranks(std::size_t i) const { return sent[i].pairs ? 2 : kRanks; }
  /// Rank `member` of the group that this rank is in.
  [[nodiscard]] int in_world(std::size_t i, int member) const {
    return sent[i].pairs ? rank_ / 2 * 2 + member : member;
  }
  [[nodiscard]] int here(std::size_t i) const { return sent[i].pairs ? rank_ % 2 : rank_; }

  void fill(std::size_t i) const {
    std::size_t const part = sent[i].count / static_cast<std::size_t>(ranks(i));
    for (std::size_t k = 0; k < sent[i].count; ++k) data(i)[k] = -1;
    bool const gathers = sent[i].kind == CollectiveKind::all_gather;
    std::size_t const begin = gathers ? part * static_cast<std::size_t>(here(i)) : 0;
    for (std::size_t k = begin; k < (gathers ? begin + part : sent[i].count); ++k)
      data(i)[k] = value(rank_, i, step, k);
  }

  /// What has to be at place k, by the collective's definition.
  [[nodiscard]] float wanted(std::size_t i, std::size_t k) const {
    std::size_t const part = sent[i].count / static_cast<std::size_t>(ranks(i));
    auto const of = [&](int member, std::size_t place) { return value(in_world(i, member), i, step, place); };
    switch (sent[i].kind) {
      case CollectiveKind::all_gather: return of(static_cast<int>(k / part), k);
      case CollectiveKind::broadcast: return of(sent[i].root, k);
      case CollectiveKind::all_to_all:
        return of(static_cast<int>(k / part), static_cast<std::size_t>(here(i)) * part + k % part);
      default: {
        float result = of(0, k);
        for (int member = 1; member < ranks(i); ++member) {
          float const other = of(member, k);
          result = sent[i].op == ReduceOp::sum ? result + other : std::max(result, other);
        }
        return result;
      }
    }
  }

  void look(std::size_t i) {
    bool const scatters = sent[i].kind == CollectiveKind::reduce_scatter;
    std::size_t const part = sent[i].count / static_cast<std::size_t>(ranks(i));
    std::size_t const begin = scatters ? part * static_cast<std::size_t>(here(i)) : 0;
    for (std::size_t k = begin; k < (scatters ? begin + part : sent[i].count); ++k) {
      if (data(i)[k] == wanted(i, k)) continue;
      ADD_FAILURE() << graph.ops[static_cast<std::size_t>(collectives[i])].name << " (" << to_string(sent[i].kind)
                    << (sent[i].pairs ? " of pairs" : "") << ") in step " << step << ", rank " << rank_ << ": place "
                    << k << " holds " << data(i)[k] << ", not " << wanted(i, k);
      break;
    }
    ++looked;
  }

  int rank_;
};

struct Way {
  char const* name;
  StepPlanner planner;
  bool blocking = false;
  std::optional<std::size_t> merged{};  ///< collectives that share a launch, where that is known
};

/// How many collectives share a launch with others.
std::size_t merged(Schedule const& plan) {
  std::size_t count = 0;
  for (Launch const& launch : plan.launches) count += launch.ops.size() > 1 ? launch.ops.size() : 0;
  return count;
}

TEST(PlanExecutorCollectives, EveryKindOverEveryGroupAloneAndMerged) {
  std::vector<Way> const ways{
      {"one by one", program_schedule, true, 0},
      {"overlapped", [](auto const& g, auto const& m) { return bucket_schedule(g, m, 1); }, false, 0},
      {"merged", [](auto const& g, auto const& m) { return bucket_schedule(g, m, 1 << 30); }, false,
       all_kinds().size()},
      {"searched", {}}};
  run_thread_ranks(kRanks, [&](Communicator& world) {
    auto pair = world.split(world.rank() / 2);
    ASSERT_TRUE(pair);
    for (Way const& way : ways) {
      SCOPED_TRACE(way.name);
      Step step(world, *pair);
      PlanExecutor executor(
          world, step.groups, step.graph, step.bindings,
          {.cluster = slow_cluster(kRanks), .planner = way.planner, .profile_steps = 2, .blocking = way.blocking});
      step.executor = &executor;
      for (; step.step < kSteps; ++step.step) executor.step();  // the plan is made anew among them
      EXPECT_TRUE(executor.is_measured());
      EXPECT_EQ(step.looked, kSteps * static_cast<int>(step.sent.size()));
      if (way.merged) {
        EXPECT_EQ(merged(executor.plan()), *way.merged);
      }
    }
  });
}

}  // namespace
}  // namespace weft::test
