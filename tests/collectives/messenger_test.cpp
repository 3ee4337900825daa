#include "weft/messenger.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <tuple>

#include "collectives/messenger_cases.hpp"
#include "harness/ranks.hpp"
#include "harness/tally.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kSizes[] = {0, 1, 100, 2015, 2016, 2017, 5000, 70000, 400001};

struct RanksAndSeeds : testing::TestWithParam<std::tuple<int, unsigned>> {};

TEST_P(RanksAndSeeds, ReceivesTakeTheNextMessageOfTheirTag) {
  auto const [ranks, seed] = GetParam();
  run_thread_ranks(ranks, [seed = seed](Communicator& world) { exchange_tagged(world, seed); });
}

TEST_P(RanksAndSeeds, AnySourceGetsEveryMessageOnceAndThoseOfARankInOrder) {
  auto const [ranks, seed] = GetParam();
  run_thread_ranks(ranks, [seed = seed](Communicator& world) { gather_from_any(world, seed); });
}

INSTANTIATE_TEST_SUITE_P(Messenger, RanksAndSeeds,
                         testing::Combine(testing::Values(2, 3, 5, 8), testing::Values(1U, 2U, 3U)));

TEST(Messenger, LongMessagesCrossInWhateverOrderRanksWait) {
  run_thread_ranks(3, cross_long_messages);
}

TEST(Messenger, NobodyNeedsToWaitForALongMessageToLeave) {
  run_thread_ranks(2, leave_in_the_background);
}

TEST(Messenger, AnotherFollowsOnTheSameCommunicator) {
  run_thread_ranks(3, take_over_from_another);
}

TEST(Messenger, WhatComesAfterItsLastReceiveIsTheNexts) {
  run_thread_ranks(3, leave_later_messages_to_the_next);
}

TEST(Messenger, ContinuationsRunOnceEvenWhenNobodyWaits) {
  run_thread_ranks(2, [](Communicator& world) {
    Messenger messenger(world);
    std::atomic<int> calls{0};
    Bytes bytes(world.rank() == 0 ? 0 : 50);
    if (world.rank() == 1) {
      auto const request = messenger.receive(std::span(bytes), 0);
      request.then([&] { ++calls; });
      world.barrier();
      while (calls.load() == 0) std::this_thread::sleep_for(1ms);
      request.then([&] { ++calls; });
      EXPECT_EQ(2, calls.load());
    } else {
      world.barrier();
      auto const sent = message_content(0, 0, 50);
      messenger.send(std::span(sent), 1).wait();
    }
    world.barrier();
  });
}

TEST(Messenger, ContinuationsMayCallItAsTheyGo) {
  struct Caller {
    Messenger::Request pending;
    std::atomic<int>& calls;
    ~Caller() {
      pending.then([count = &calls] { ++*count; });
    }
  };
  run_thread_ranks(2, [](Communicator& world) {
    Messenger messenger(world);
    std::atomic<int> calls{0};
    Bytes first(50);
    Bytes second(50);
    if (world.rank() == 1) {
      auto const pending = messenger.receive(std::span(second), 0, 2);
      auto const request = messenger.receive(std::span(first), 0, 1);
      request.then([caller = std::shared_ptr<Caller>(new Caller{pending, calls})] {});
      world.barrier();
      request.wait();
      world.barrier();
      pending.wait();
      while (calls.load() == 0) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(1, calls.load());
    } else {
      world.barrier();
      messenger.send(std::span(first), 1, 1).wait();
      world.barrier();
      messenger.send(std::span(second), 1, 2).wait();
    }
    world.barrier();
  });
}

TEST(Messenger, ThreadsShareIt) {
  run_thread_ranks(2, [](Communicator& world) {
    Messenger messenger(world);
    auto const peer = 1 - world.rank();
    std::vector<std::thread> threads;
    for (int tag = 0; tag < 4; ++tag) {
      threads.emplace_back([&, tag] {
        for (int i = 0; i < 50; ++i) {
          auto const size = kSizes[static_cast<std::size_t>(i + tag) % std::size(kSizes)];
          auto const mine = message_content(world.rank(), tag * 1000 + i, size);
          Bytes got(size);
          auto const send = messenger.send(std::span(mine), peer, tag);
          messenger.receive(std::span(got), peer, tag).wait();
          send.wait();
          ASSERT_EQ(message_content(peer, tag * 1000 + i, size), got);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    world.barrier();
  });
}

TEST(MessengerErrors, ADifferentSizeFailsThatReceiveOnly) {
  run_thread_ranks(2, drop_what_does_not_fit);
}

TEST(MessengerErrors, ALateRankIsNamed) {
  run_thread_ranks(3, [](Communicator& world) {
    Messenger messenger(world);
    Bytes bytes(10);
    if (world.rank() == 0) {
      auto const start = std::chrono::steady_clock::now();
      try {
        messenger.receive(std::span(bytes), 2, 1, 200ms).wait();
        ADD_FAILURE() << "noticed nothing";
      } catch (Error const& error) {
        EXPECT_EQ(ErrorCode::timeout, error.code());
        EXPECT_NE(std::string::npos, std::string(error.what()).find("rank 2 did not send")) << error.what();
      }
      EXPECT_LT(std::chrono::steady_clock::now() - start, kNoticed);
    } else {
      EXPECT_THROW(messenger.receive(std::span(bytes), 0, 1).wait(), Error);  // told by rank 0
    }
  });
}

TEST(MessengerErrors, ADeadRankIsNamed) {
  auto const exits = run_forked_ranks(3, [](Communicator& world) {
    Messenger messenger(world);
    if (world.rank() == 2) ::raise(SIGKILL);
    Bytes bytes(10);
    try {
      messenger.receive(std::span(bytes), 2).wait();
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::peer_lost, error.code());
      EXPECT_NE(std::string::npos, std::string(error.what()).find("rank 2")) << error.what();
      return 0;
    }
    return 1;
  });
  EXPECT_EQ(SIGKILL, exits[2].signal);
  EXPECT_EQ(0, exits[0].code) << exits[0].output;
  EXPECT_EQ(0, exits[1].code) << exits[1].output;
}

// Whoever waits for any rank hears that one has died, though another may still send.
TEST(MessengerErrors, ADeadRankEndsAReceiveFromAnybody) {
  Tally told;
  auto const exits = run_forked_ranks(4, [&](Communicator& world) {
    Messenger messenger(world);
    Bytes bytes(10);
    if (world.rank() == 2) {
      messenger.send(std::span(bytes), 0, 7).wait();
      ::raise(SIGKILL);
    }
    if (world.rank() == 3) told.await(1);  // alive until then, and may send
    if (world.rank() != 0) return 0;
    messenger.receive(std::span(bytes), Messenger::kAnyRank, 7).wait();  // what it sent before counts
    try {
      messenger.receive(std::span(bytes), Messenger::kAnyRank, 7).wait();
    } catch (Error const& error) {
      told.add();
      EXPECT_EQ(ErrorCode::peer_lost, error.code());
      EXPECT_NE(std::string::npos,
                std::string(error.what()).find("rank 2 died while rank 0 waits for 10 × u8 with tag 7 from any"))
          << error.what();
      return 0;
    }
    return 1;
  });
  EXPECT_EQ(SIGKILL, exits[2].signal);
  EXPECT_EQ(0, exits[0].code) << exits[0].output;
}

// A rank that has done its part and left is no failure, as long as others may send.
TEST(MessengerErrors, RanksThatLeaveEndAReceiveFromAnybodyOnceAllHave) {
  run_thread_bootstraps(3, [](std::shared_ptr<Bootstrap> const& bootstrap) {
    auto world = Communicator::create(bootstrap);
    Messenger messenger(world);
    Bytes bytes(10);
    if (world.rank() == 1) std::this_thread::sleep_for(300ms);
    if (world.rank() != 0) return messenger.send(std::span(bytes), 0, 7).wait();
    for (int i = 0; i < 2; ++i) messenger.receive(std::span(bytes), Messenger::kAnyRank, 7).wait();
    try {
      messenger.receive(std::span(bytes), Messenger::kAnyRank, 7).wait();
      ADD_FAILURE() << "noticed nothing";
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::peer_lost, error.code());
      EXPECT_NE(std::string::npos, std::string(error.what()).find("ranks 1, 2 left")) << error.what();
    }
  });
}

TEST(MessengerErrors, PendingOperationsEndWithIt) {
  run_thread_ranks(2, [](Communicator& world) {
    Bytes bytes(10);
    std::optional<Messenger::Request> request;
    {
      Messenger messenger(world);
      request = messenger.receive(std::span(bytes), 1 - world.rank());
    }
    EXPECT_TRUE(request->test());
    EXPECT_THROW(request->wait(), Error);
    world.barrier();
  });
}

TEST(Messenger, AContinuationMayDestroyIt) {
  run_thread_ranks(2, [](Communicator& world) {
    Bytes bytes(50);
    for (bool const waits : {false, true}) {
      std::optional<Messenger> messenger(world);
      std::atomic<bool> destroyed{false};
      if (world.rank() == 1) messenger->send(std::span(bytes), 0).wait();
      if (world.rank() == 0) {
        auto const request = messenger->receive(std::span(bytes), 1);
        request.then([&] {
          messenger.reset();
          destroyed.store(true);
        });
        if (waits) request.wait();
        while (!destroyed.load()) std::this_thread::yield();
      }
      world.barrier();
    }
  });
}

// The receiver knows of the message from its head and waits for the rest: nothing may come in its place.
TEST(MessengerErrors, NothingFollowsAMessageThatEndsHalfway) {
  run_thread_ranks(3, [](Communicator& world) {
    Bytes longer(1 << 20);
    Bytes bytes(10);
    auto const expect_aborted = [](std::string const& peer, auto const& body) {
      try {
        body();
        ADD_FAILURE() << "no error";
      } catch (Error const& error) {
        EXPECT_EQ(ErrorCode::aborted, error.code()) << error.what();
        EXPECT_NE(std::string::npos, std::string(error.what()).find(peer)) << error.what();
      }
    };
    if (world.rank() == 0) {
      std::optional<Messenger::Request> request;
      {
        Messenger messenger(world);
        request = messenger.send(std::span(longer), 1);
      }
      expect_aborted("destroyed", [&] { request->wait(); });
      Messenger next(world);
      expect_aborted("rank 1", [&] { (void)next.send(std::span(bytes), 1); });
      next.send(std::span(bytes), 2).wait();
      next.receive(std::span(bytes), 1).wait();
    } else {
      Messenger messenger(world);
      if (world.rank() == 1) messenger.send(std::span(bytes), 0).wait();
      if (world.rank() == 2) messenger.receive(std::span(bytes), 0).wait();
    }
    world.barrier();
    if (world.rank() == 0) expect_aborted("rank 1", [&] { world.send(std::span(bytes), 1); });
    world.barrier();
  });
}

TEST(MessengerErrors, CallersMistakesThrowAtOnce) {
  run_thread_ranks(2, [](Communicator& world) {
    Messenger messenger(world);
    Bytes bytes(10);
    EXPECT_THROW((void)messenger.send(std::span(bytes), 2), Error);
    EXPECT_THROW((void)messenger.receive(std::span(bytes), -2), Error);
    EXPECT_THROW((void)messenger.send({nullptr, 4, DataType::f32}, 1 - world.rank()), Error);
    world.barrier();
  });
}

}  // namespace
}  // namespace weft::test
