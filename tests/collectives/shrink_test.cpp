// Ranks die; those that are left form a communicator of their own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "harness/ranks.hpp"
#include "harness/tally.hpp"
#include "weft/communicator.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

CommunicatorOptions with_timeout(std::chrono::milliseconds timeout) {
  Config config;
  config.timeout = timeout;
  return {.config = config};
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  std::abort();
}

/// The sum of `value` over the ranks.
int sum(Communicator& world, int value) {
  std::vector<std::int32_t> one{value};
  world.all_reduce(std::span<std::int32_t const>(one), std::span(one), ReduceOp::sum);
  return one[0];
}

/// Calls until one fails, which is the loss of a rank.
void expect_lost(Communicator& world) {
  try {
    for (int i = 0; i < 100000; ++i) static_cast<void>(sum(world, 1));
    ADD_FAILURE() << "nothing was lost";
  } catch (Error const& error) {
    EXPECT_TRUE(error.code() == ErrorCode::peer_lost || error.code() == ErrorCode::aborted) << error.what();
  }
}

/// Everything a communicator does: reductions, messages, symmetric memory, split.
void expect_whole(Communicator& world, std::vector<int> const& numbers) {
  auto const me = static_cast<std::size_t>(world.rank());
  ASSERT_EQ(world.size(), static_cast<int>(numbers.size()));
  EXPECT_EQ(sum(world, numbers[me]), std::accumulate(numbers.begin(), numbers.end(), 0));
  std::vector<std::int32_t> all(numbers.size());
  std::vector<std::int32_t> const mine{numbers[me]};
  world.all_gather(std::span<std::int32_t const>(mine), std::span(all));
  EXPECT_EQ(all, std::vector<std::int32_t>(numbers.begin(), numbers.end()));
  auto memory = world.allocate(100'000, DataType::f32);
  for (auto& value : memory.as<float>()) value = static_cast<float>(numbers[me]);
  world.all_reduce(memory.view(), memory.view(), ReduceOp::max);
  EXPECT_EQ(memory.as<float>()[99'999], static_cast<float>(*std::max_element(numbers.begin(), numbers.end())));
  if (world.size() > 1) {
    std::vector<std::int32_t> got(1);
    world.send_recv({mine.data(), 1, DataType::i32}, (world.rank() + 1) % world.size(), {got.data(), 1, DataType::i32},
                    (world.rank() + world.size() - 1) % world.size());
    EXPECT_EQ(got[0], numbers[(me + numbers.size() - 1) % numbers.size()]);
  }
  auto half = world.split(world.rank() % 2);
  half->barrier();
  world.barrier();  // nobody ends it while others use it
}

/// Ranks that were killed, and the others, which succeeded.
void expect_ends(std::vector<RankExit> const& exits, std::vector<int> const& killed) {
  for (std::size_t rank = 0; rank < exits.size(); ++rank) {
    bool const dies = std::find(killed.begin(), killed.end(), static_cast<int>(rank)) != killed.end();
    EXPECT_EQ(exits[rank].signal, dies ? SIGKILL : 0) << "rank " << rank << '\n' << exits[rank].output;
    EXPECT_EQ(exits[rank].code, dies ? -1 : 0) << "rank " << rank << '\n' << exits[rank].output;
  }
}

TEST(Shrink, SurvivorsOfAKilledRankGoOn) {
  for (int const lost : {0, 1, 3}) {
    auto const exits = run_forked_ranks(
        4,
        [&](Communicator& world) {
          auto const number = world.rank();
          static_cast<void>(sum(world, 1));
          if (number == lost) die();
          expect_lost(world);
          auto const began = std::chrono::steady_clock::now();
          auto rest = world.shrink();
          EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
          std::vector<int> numbers{0, 1, 2, 3};
          numbers.erase(numbers.begin() + lost);
          EXPECT_EQ(numbers[static_cast<std::size_t>(rest.rank())], number);
          expect_whole(rest, numbers);
          EXPECT_THROW(static_cast<void>(sum(world, 1)), Error);  // the old one stays over
          return 0;
        },
        with_timeout(20s));
    expect_ends(exits, {lost});
  }
}

TEST(Shrink, TheLastRankIsACommunicatorOfOne) {
  auto const exits = run_forked_ranks(3, [&](Communicator& world) {
    if (world.rank() != 2) die();
    expect_lost(world);
    auto rest = world.shrink();
    expect_whole(rest, {2});
    return 0;
  });
  expect_ends(exits, {0, 1});
}

TEST(Shrink, AgainAndAgainAsRanksDie) {
  auto const exits = run_forked_ranks(
      5,
      [&](Communicator& first) {
        auto const number = first.rank();
        auto world = std::move(first);
        for (int lost = 0; lost < 4; ++lost) {
          if (number == lost) die();
          expect_lost(world);
          world = world.shrink();
          EXPECT_EQ(world.size(), 4 - lost);
          EXPECT_EQ(world.rank(), number - lost - 1);
        }
        return 0;
      },
      with_timeout(20s));
  expect_ends(exits, {0, 1, 2, 3});
}

// Ranks die at any point of the others' shrink(), which then goes on without them too.
TEST(Shrink, RanksMayDieMeanwhile) {
  for (int round = 0; round < 8; ++round) {
    auto const exits = run_forked_ranks(
        5,
        [&](Communicator& world) {
          auto const number = world.rank();
          if (number == 0) die();
          expect_lost(world);
          if (number >= 3) {
            std::thread([delay = std::chrono::microseconds(400 * round * (number - 2))] {
              std::this_thread::sleep_for(delay);
              die();
            }).detach();
          }
          auto rest = world.shrink();
          if (number >= 3) std::this_thread::sleep_for(10s);
          for (int tries = 0; tries < 3 && rest.size() > 2; ++tries) {
            expect_lost(rest);
            rest = rest.shrink();
          }
          expect_whole(rest, {1, 2});
          return 0;
        },
        with_timeout(20s));
    expect_ends(exits, {0, 3, 4});
  }
}

TEST(Shrink, PendingCallsOnStreamsEndFirst) {
  auto const exits = run_forked_ranks(3, [&](Communicator& world) {
    Stream const stream = Stream::cpu();
    std::vector<float> values(1000, 1.0F);
    if (world.rank() == 1) die();
    BufferView const view(values.data(), values.size(), DataType::f32);
    std::vector<Work> works;
    try {
      for (int i = 0; i < 5; ++i) works.push_back(world.all_reduce(view, view, ReduceOp::sum, {.stream = stream}));
    } catch (Error const&) {  // the loss is known already
    }
    auto rest = world.shrink();
    for (auto const& work : works) EXPECT_THROW(work.wait(), Error);
    expect_whole(rest, {0, 2});
    return 0;
  });
  expect_ends(exits, {1});
}

// Nobody died: ranks that left are not waited for, and a communicator that failed otherwise has a successor of all.
TEST(Shrink, ARankThatLeftIsNoSurvivor) {
  run_thread_ranks(3, [&](Communicator& world) {
    auto const number = world.rank();
    if (number == 1) return;
    expect_lost(world);
    auto rest = world.shrink();
    expect_whole(rest, {0, 2});
    EXPECT_EQ(rest.rank(), number == 0 ? 0 : 1);
  });
}

TEST(Shrink, OneThatWasAbortedHasASuccessorOfAllRanks) {
  run_thread_ranks(3, [&](Communicator& world) {
    if (world.rank() == 1) world.abort("enough");
    auto again = world.shrink({.name = "again"});
    expect_whole(again, {0, 1, 2});
    EXPECT_EQ(again.options().name, "again");
    // And one that had not failed at all ends for the ranks that use it.
    if (again.rank() == 2) {
      expect_lost(again);
    }
    auto third = again.shrink();
    expect_whole(third, {0, 1, 2});
  });
}

// Its part fails before it talks to anybody; the others wait for it in the middle of theirs.
TEST(Shrink, ARankThatFailsAloneTellsTheOthersWhyAtOnce) {
  run_thread_ranks(
      3,
      [&](Communicator& world) {
        auto options = world.options();
        if (world.rank() == 1) options.emulated_link = EmulatedLink{.bytes_per_second = -1};
        auto const began = std::chrono::steady_clock::now();
        try {
          static_cast<void>(world.shrink(options));
          ADD_FAILURE();
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
          EXPECT_NE(std::string(error.what()).find("rank 1: "), std::string::npos) << error.what();
        }
        EXPECT_LT(std::chrono::steady_clock::now() - began, 15s);
      },
      with_timeout(20s));
}

TEST(Shrink, ARankThatIsAliveAndDoesNotComeIsNamed) {
  Tally gave_up;
  run_thread_ranks(
      3,
      [&](Communicator& world) {
        if (world.rank() == 1) {
          gave_up.await(2);
          return;
        }
        try {
          static_cast<void>(world.shrink());
          ADD_FAILURE();
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::timeout);
          EXPECT_NE(std::string(error.what()).find("rank 1, which is alive"), std::string::npos) << error.what();
          EXPECT_NE(std::string(error.what()).find("shrink()"), std::string::npos) << error.what();
        }
        gave_up.add();
      },
      with_timeout(kImpatience));
}

}  // namespace
}  // namespace weft::test
