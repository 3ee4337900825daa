// Communicators that share their ranks are used at once, from several threads and several streams, in any order between
// them as long as the order within each is the same on all its ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <random>
#include <thread>

#include "collectives/cases/attempt.hpp"
#include "collectives/cases/random_run.hpp"
#include "harness/ranks.hpp"
#include "harness/sanitizers.hpp"

namespace weft::test {
namespace {

constexpr std::uint64_t kCases = unless_sanitized(400, 12);
constexpr std::size_t kAtOnce = 5;  // calls of a communicator that are under way at a time
constexpr std::size_t kAreaBytes = std::size_t{64} << 10U;
constexpr std::size_t kMostBytes = std::size_t{256} << 10U;

RandomRun const& this_run() {
  static RandomRun const run(kCases);
  return run;
}

/// A communicator, and what its cases need.
struct Member {
  explicit Member(Communicator&& with, std::uint64_t which)
      : communicator(std::move(with)),
        arena(communicator, 2 * kAtOnce, kAreaBytes),
        stream(Stream::cpu()),
        seed(this_run().seed + which) {}

  Communicator communicator;
  Arena arena;
  Stream stream;
  std::uint64_t seed;
  std::uint64_t next = 0;

  /// The next case that is small enough; the same on all of the communicator's ranks.
  [[nodiscard]] Case draw() {
    for (;;) {
      auto one = make_case(seed, next++, communicator.size());
      if (one.count * size_of(one.dtype) * static_cast<std::size_t>(one.ranks) <= kMostBytes) return one;
    }
  }
};

/// Three duplicates, two halves by another order of ranks, and the first of the halves once more.
std::vector<std::unique_ptr<Member>> make_members(Communicator& world) {
  std::vector<std::unique_ptr<Member>> members;
  for (std::uint64_t i = 0; i < 3; ++i)
    members.push_back(std::make_unique<Member>(world.duplicate(world.options()), i));
  auto half = world.split(world.rank() % 2, -world.rank());
  auto again = half->duplicate(half->options());
  auto const color = static_cast<std::uint64_t>(world.rank() % 2);
  members.push_back(std::make_unique<Member>(std::move(*half), 10 + color));
  members.push_back(std::make_unique<Member>(std::move(again), 20 + color));
  return members;
}

TEST(SeveralCommunicators, AThreadEach) {
  SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(this_run().seed));
  run_thread_ranks(4, [](Communicator& world) {
    auto const members = make_members(world);
    std::mutex mutex;
    std::exception_ptr failure;
    std::vector<std::thread> threads;
    for (auto const& member : members) {
      threads.emplace_back([&, &mine = *member] {
        try {
          for (std::uint64_t i = 0; i < this_run().cases; ++i) {
            Attempt attempt(mine.communicator, mine.draw(), mine.arena, 0);
            attempt.issue(i % 3 == 0 ? CollectiveOptions{.stream = mine.stream} : CollectiveOptions{});
            attempt.finish();
          }
        } catch (std::exception const& error) {
          std::scoped_lock const lock(mutex);
          if (!failure) failure = std::current_exception();
          for (auto const& other : members) other->communicator.abort(error.what());  // they may wait for this one
        }
      });
    }
    for (auto& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
  });
}

/// Every communicator's calls in its own order, each rank's order between them its own.
void issue_interleaved(std::vector<std::unique_ptr<Member>> const& members,
                       std::vector<std::vector<std::unique_ptr<Attempt>>> const& attempts, std::mt19937_64& random) {
  std::vector<std::size_t> turns;
  for (std::size_t i = 0; i < members.size(); ++i) turns.insert(turns.end(), attempts[i].size(), i);
  std::shuffle(turns.begin(), turns.end(), random);
  std::vector<std::size_t> issued(members.size());
  for (auto const turn : turns) attempts[turn][issued[turn]++]->issue({.stream = members[turn]->stream});
}

TEST(SeveralCommunicators, AStreamEachInAnotherOrderOnEveryRank) {
  SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(this_run().seed));
  run_thread_ranks(4, [](Communicator& world) {
    auto const members = make_members(world);
    std::mt19937_64 random(this_run().seed + static_cast<std::uint64_t>(world.rank()));  // differs between ranks
    for (std::uint64_t done = 0; done < this_run().cases; done += kAtOnce) {
      std::vector<std::vector<std::unique_ptr<Attempt>>> attempts(members.size());
      for (std::size_t i = 0; i < members.size(); ++i) {
        for (std::size_t k = 0; k < kAtOnce; ++k) {
          auto one = members[i]->draw();
          if (one.memory == Memory::fresh) one.memory = Memory::own;  // allocating is a call that waits at once
          attempts[i].push_back(std::make_unique<Attempt>(members[i]->communicator, one, members[i]->arena, 2 * k));
        }
      }
      issue_interleaved(members, attempts, random);
      for (auto& of_member : attempts) {
        for (auto& attempt : of_member) attempt->finish();
      }
    }
  });
}

TEST(SeveralCommunicators, MadeAndDroppedWhileOthersAreBusy) {
  run_thread_ranks(3, [](Communicator& world) {
    auto busy = world.duplicate(world.options());
    auto const stream = Stream::cpu();
    std::vector<double> values(20'000, 1.0);
    std::vector<Work> works;
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < 5; ++i)
        works.push_back(busy.all_reduce(std::span(values), std::span(values), ReduceOp::avg, {.stream = stream}));
      auto part = world.split(round % 2 == 0 ? 0 : world.rank());
      auto copy = part->duplicate(part->options());
      std::int32_t const one = 1;
      std::int32_t sum = 0;
      copy.all_reduce(std::span(&one, 1), std::span(&sum, 1), ReduceOp::sum);
      EXPECT_EQ(copy.size(), sum);
    }
    for (auto const& work : works) work.wait();
    EXPECT_EQ(std::vector<double>(20'000, 1.0), values);
  });
}

}  // namespace
}  // namespace weft::test
