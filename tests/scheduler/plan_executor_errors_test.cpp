#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>
#include <string>

#include "harness/ranks.hpp"
#include "scheduler/small_step.hpp"
#include "weft/error.hpp"
#include "weft/fixed_schedule.hpp"
#include "weft/memory.hpp"
#include "weft/plan_executor.hpp"

namespace weft::test {
namespace {

std::vector<std::size_t> const kSizes{1000, 5000, 3};

PlanExecutorOptions plain() {
  return {.cluster = slow_cluster(2), .planner = program_schedule, .profile_steps = 0};
}

struct Failure {
  ErrorCode code{};
  std::string what;
};

/// What making an executor throws on each of two ranks; the communicator goes on.
template <typename Spoil>
std::vector<Failure> refusals(Spoil const& spoil) {
  std::vector<Failure> failures(2);
  run_thread_ranks(2, [&](Communicator& world) {
    SmallStep small(world.rank(), world.size(), kSizes);
    PlanExecutorOptions options = plain();
    spoil(world.rank(), small, options);
    try {
      PlanExecutor executor(world, small.graph, small.bindings, options);
      ADD_FAILURE() << "rank " << world.rank() << " refused nothing";
    } catch (Error const& error) {
      failures[static_cast<std::size_t>(world.rank())] = {error.code(), error.what()};
    }
    world.barrier();
  });
  return failures;
}

void expect(Failure const& failure, ErrorCode code, std::vector<std::string> const& words) {
  EXPECT_EQ(failure.code, code) << failure.what;
  for (auto const& word : words) EXPECT_NE(failure.what.find(word), std::string::npos) << word << ": " << failure.what;
}

TEST(PlanExecutorErrors, MissingCallbackIsNamedAndOtherRanksSaySoToo) {
  auto const failures = refusals([](int rank, SmallStep& small, auto&) {
    if (rank == 1) small.bindings[1].run = {};
  });
  expect(failures[1], ErrorCode::invalid_argument, {"forward1", "no callback", "bindings[1].run"});
  expect(failures[0], ErrorCode::mismatch, {"rank 1 refused"});
}

TEST(PlanExecutorErrors, CollectiveWithoutABuffer) {
  for (auto const &failure : refusals([](int, SmallStep&small, auto&) {
         small.bindings[static_cast<std::size_t>(small.gradients[0])].count = 0;
       })) {
    expect(failure, ErrorCode::invalid_argument, {"reduce0", "no buffer", "4000 bytes"});
  }
}

TEST(PlanExecutorErrors, BufferOfOtherBytes) {
  for (auto const &failure : refusals([](int, SmallStep&small, auto&) {
         small.bindings[static_cast<std::size_t>(small.gradients[1])].dtype = DataType::f64;
       })) {
    expect(failure, ErrorCode::invalid_argument, {"reduce1", "moves 20000 bytes", "5000 x"});
  }
}

TEST(PlanExecutorErrors, WhatRanksCannotShare) {
  for (auto const &failure : refusals([](int, SmallStep&small, auto&) {
         auto& collective = small.graph.ops[static_cast<std::size_t>(small.gradients[2])].collective;
         collective.kind = CollectiveKind::reduce_scatter;
       })) {
    expect(failure, ErrorCode::invalid_argument, {"reduce2", "2 ranks cannot share 3 elements"});
  }
}

TEST(PlanExecutorErrors, Permutes) {
  for (auto const &failure : refusals([](int, SmallStep&small, auto&) {
         small.graph.ops[static_cast<std::size_t>(small.gradients[2])].collective.kind = CollectiveKind::permute;
       })) {
    expect(failure, ErrorCode::unsupported, {"reduce2", "permute"});
  }
}

TEST(PlanExecutorErrors, GroupsOfOtherSizes) {
  for (auto const &failure : refusals([](int, SmallStep&small, auto&) { small.graph.groups[0].sets = {{0, 1, 2}}; })) {
    expect(failure, ErrorCode::invalid_argument, {"group 0 (data)", "sets of 3 ranks", "communicator 2"});
  }
}

TEST(PlanExecutorErrors, AnotherGraphOnOneRank) {
  for (auto const &failure : refusals([](int rank, SmallStep&small, auto&) {
         if (rank == 1) small.graph.ops[2].memory_bytes = 7;
       })) {
    expect(failure, ErrorCode::mismatch, {"rank 1 differs", "operator 2 (forward2)"});
  }
}

TEST(PlanExecutorErrors, AnotherNumberOfOperators) {
  for (auto const &failure : refusals([](int rank, SmallStep&small, auto&) {
         if (rank == 0) return;
         small.graph.add(OpNode{.name = "one more"});
         small.bindings.push_back({.run = [] {}});
       })) {
    expect(failure, ErrorCode::mismatch, {"rank 1 differs", "13 operators there, 12 on rank 0"});
  }
}

TEST(PlanExecutorErrors, OtherOptions) {
  for (auto const &failure : refusals([](int rank, SmallStep&, auto&options) { options.profile_steps = 1 + rank; })) {
    expect(failure, ErrorCode::mismatch, {"rank 1 differs", "profile_steps"});
  }
}

TEST(PlanExecutorErrors, AnotherPlanOnOneRank) {
  for (auto const &failure : refusals([](int rank, SmallStep&, auto&options) {
         if (rank == 1) options.planner = [](auto const& g, auto const& m) { return bucket_schedule(g, m, 1 << 30); };
       })) {
    expect(failure, ErrorCode::mismatch, {"rank 1 differs", "plan that it came to"});
  }
}

/// Among pairs of ranks, of which the first rank has memory for one set of buffers.
TEST(PlanExecutorErrors, AllRanksKeepTheirPlanWhereOneHasNoMemoryForTheNext) {
  constexpr int kRanks = 4;
  constexpr int kSteps = 6;
  std::vector<std::size_t> const sizes{300'000, 500'000, 200'000};
  std::vector<std::size_t> launches(kRanks);
  run_thread_ranks(kRanks, [&](Communicator& world) {
    auto pair = world.split(world.rank() / 2);
    MemoryAccount const account(world.rank() == 0 ? 6'000'000 : MemoryAccount::kUnlimited);
    MemoryAccount::Binding const bound(account);
    SmallStep small(pair->rank(), pair->size(), sizes);
    small.graph.groups[0].sets = {{0, 1}, {2, 3}};
    int plans = 0;
    auto const planner = [&plans](OpGraph const& graph, CostModel const& model) {
      return plans++ == 0 ? program_schedule(graph, model) : bucket_schedule(graph, model, 1 << 30);
    };
    PlanExecutor executor(world, {&*pair}, small.graph, small.bindings,
                          {.cluster = slow_cluster(kRanks), .planner = planner, .profile_steps = 2});
    small.executor = &executor;
    for (int step = 0; step < kSteps; ++step) small.step();
    EXPECT_TRUE(executor.is_measured());
    EXPECT_EQ(executor.generation(), 1U) << "rank " << world.rank();
    launches[static_cast<std::size_t>(world.rank())] = executor.plan().launches.size();
    auto const wanted = small.reference(kSteps);
    for (std::size_t layer = 0; layer < wanted.size(); ++layer) {
      EXPECT_NEAR(small.weights[layer].back(), wanted[layer].back(), 1e-4) << layer;
    }
  });
  for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(launches[static_cast<std::size_t>(rank)], launches[0]);
}

/// ... nor for the first, which ranks of other groups are told.
TEST(PlanExecutorErrors, NoRankGoesOnWhereOneHasNoMemory) {
  run_thread_ranks(4, [&](Communicator& world) {
    auto pair = world.split(world.rank() / 2);
    MemoryAccount const account(world.rank() == 0 ? 10'000 : MemoryAccount::kUnlimited);
    MemoryAccount::Binding const bound(account);
    SmallStep small(pair->rank(), pair->size(), kSizes);
    small.graph.groups[0].sets = {{0, 1}, {2, 3}};
    try {
      PlanExecutor executor(world, {&*pair}, small.graph, small.bindings, plain());
      ADD_FAILURE() << "rank " << world.rank() << " has an executor";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
      auto const* const words = world.rank() == 0 ? "memory budget" : "rank 0";
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
    world.barrier();
    pair->barrier();
  });
}

TEST(PlanExecutorErrors, NoPlanOfTheGraph) {
  struct Case {
    void (*spoil)(Schedule&);
    std::string word;
  };
  std::vector<Case> const cases{
      {[](Schedule& plan) { plan.launches.pop_back(); }, "is not in the plan"},
      {[](Schedule& plan) { plan.launches.push_back(plan.launches.front()); }, "twice"},
      {[](Schedule& plan) { std::swap(plan.launches.front(), plan.launches.back()); },
       "starts before what it waits for"},
      {[](Schedule& plan) { plan.launches.front().resource = Resource::within_host; }, "another resource"},
      {[](Schedule& plan) {
         plan.launches[0].ops.push_back(plan.launches[1].ops.front());
         plan.launches.erase(plan.launches.begin() + 1);
       },
       "merged"},
      {[](Schedule& plan) { plan.launches.front().ops = {99}; }, "operator 99 (there is none)"}};
  for (Case const& each : cases) {
    for (auto const& failure : refusals([&](int, SmallStep&, auto& options) {
           options.planner = [&](auto const& g, auto const& m) {
             Schedule plan = program_schedule(g, m);
             each.spoil(plan);
             return plan;
           };
         })) {
      expect(failure, ErrorCode::invalid_argument, {each.word, "small step"});
    }
  }
}

TEST(PlanExecutorErrors, BuffersOfWhatIsNoCollective) {
  run_thread_ranks(1, [](Communicator& world) {
    SmallStep small(0, 1, kSizes);
    PlanExecutor const executor(world, small.graph, small.bindings, plain());
    EXPECT_THROW(static_cast<void>(executor.buffer(0)), Error);
    EXPECT_THROW(static_cast<void>(executor.buffer(-1)), Error);
    EXPECT_THROW(static_cast<void>(executor.buffer(99)), Error);
  });
}

/// Nothing hangs: the other rank is told, in this step and in later ones, and so is whoever threw.
TEST(PlanExecutorErrors, ACallbackThatThrowsFailsTheStepOnEveryRank) {
  std::vector<std::string> what(2), again(2);
  run_thread_ranks(2, [&](Communicator& world) {
    SmallStep small(world.rank(), world.size(), kSizes);
    if (world.rank() == 1) small.bindings[1].run = [] { throw std::runtime_error("no such luck"); };
    PlanExecutor executor(world, small.graph, small.bindings, plain());
    small.executor = &executor;
    for (auto* const text : {&what, &again}) {
      try {
        executor.step();
        ADD_FAILURE() << "rank " << world.rank() << " noticed nothing";
      } catch (Error const& error) {
        (*text)[static_cast<std::size_t>(world.rank())] = error.what();
      }
    }
  });
  for (int rank = 0; rank < 2; ++rank) {
    auto const& text = what[static_cast<std::size_t>(rank)];
    EXPECT_NE(text.find("forward1"), std::string::npos) << text;
    EXPECT_NE(text.find("no such luck"), std::string::npos) << text;
    EXPECT_EQ(text, again[static_cast<std::size_t>(rank)]);
  }
  EXPECT_NE(what[0].find("rank 1"), std::string::npos) << what[0];
}

/// A planner that goes by something else than its arguments is found out when it plans again.
TEST(PlanExecutorErrors, RanksThatPlanAgainDifferently) {
  run_thread_ranks(2, [](Communicator& world) {
    SmallStep small(world.rank(), world.size(), kSizes);
    PlanExecutorOptions options = plain();
    options.profile_steps = 1;
    options.planner = [calls = 0, &world](auto const& g, auto const& m) mutable {
      return bucket_schedule(g, m, ++calls > 1 && world.rank() == 1 ? 1 << 30 : 1);
    };
    PlanExecutor executor(world, small.graph, small.bindings, options);
    small.executor = &executor;
    small.step();
    try {
      small.step();
      ADD_FAILURE() << "rank " << world.rank() << " noticed nothing";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
    }
  });
}

TEST(FixedSchedules, ZeroCapsAndCyclesAreRefused) {
  SmallStep const small(0, 2, kSizes);
  CostModel const model(slow_cluster(2));
  auto const expect_refused = [](std::string const& word, auto const& body) {
    try {
      body();
      ADD_FAILURE() << "nothing was thrown of " << word;
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::invalid_argument, error.code());
      EXPECT_NE(std::string::npos, std::string(error.what()).find(word)) << error.what();
    }
  };
  expect_refused("buckets of 0 bytes; ", [&] { static_cast<void>(bucket_schedule(small.graph, model, 0)); });
  OpGraph cyclic = small.graph;
  cyclic.ops[0].after = {static_cast<OpId>(cyclic.ops.size() - 1)};
  expect_refused("cycle", [&] { static_cast<void>(program_schedule(cyclic, model)); });
}

}  // namespace
}  // namespace weft::test
