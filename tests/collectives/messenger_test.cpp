#include "weft/messenger.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <random>
#include <thread>
#include <tuple>

#include "harness/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::uint8_t>;

/// Around what goes with the head, what fits a mailbox, and more.
constexpr std::size_t kSizes[] = {0, 1, 100, 2015, 2016, 2017, 5000, 70000, 400001};

/// What rank `from` sends as its `number`th message.
Bytes content(int from, int number, std::size_t size) {
  std::mt19937 engine(static_cast<unsigned>(from * 7919 + number));
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(engine());
  return bytes;
}

struct Planned {
  int from = 0;
  int to = 0;
  int tag = 0;
  int number = 0;
  std::size_t size = 0;
};

/// The same on every rank.
std::vector<Planned> make_plan(unsigned seed, int ranks, int messages) {
  std::mt19937 engine(seed);
  auto const pick = [&](int below) { return static_cast<int>(engine() % static_cast<unsigned>(below)); };
  std::vector<Planned> plan;
  for (int i = 0; i < messages; ++i) {
    plan.push_back({pick(ranks), pick(ranks), pick(3), i, kSizes[static_cast<std::size_t>(pick(std::size(kSizes)))]});
  }
  return plan;
}

struct Tagged : testing::TestWithParam<std::tuple<int, unsigned>> {};

// Every rank receives its messages in an order of its own; the k-th receive of a rank and tag gets their k-th message.
TEST_P(Tagged, ReceivesTakeTheNextMessageOfTheirTag) {
  auto const [ranks, seed] = GetParam();
  auto const plan = make_plan(seed, ranks, 60);
  run_thread_ranks(ranks, [&, seed = seed](Communicator& world) {
    auto const rank = world.rank();
    std::mt19937 engine(seed * 31 + static_cast<unsigned>(rank));
    std::map<std::pair<int, int>, std::vector<Planned>> coming;
    std::vector<Planned const*> sends;
    std::vector<std::pair<int, int>> receives;
    for (auto const& one : plan) {
      if (one.from == rank) sends.push_back(&one);
      if (one.to != rank) continue;
      coming[{one.from, one.tag}].push_back(one);
      receives.emplace_back(one.from, one.tag);
    }
    std::shuffle(receives.begin(), receives.end(), engine);
    std::vector<Bytes> sent;
    std::vector<std::pair<Planned, Bytes>> received;
    sent.reserve(plan.size());
    received.reserve(plan.size());
    std::vector<Messenger::Request> requests;
    Messenger messenger(world);
    std::map<std::pair<int, int>, std::size_t> taken;
    for (std::size_t s = 0, r = 0; s < sends.size() || r < receives.size();) {
      if (s < sends.size() && (r == receives.size() || engine() % 2 == 0)) {
        auto const& one = *sends[s++];
        sent.push_back(content(one.from, one.number, one.size));
        requests.push_back(messenger.send(std::span(sent.back()), one.to, one.tag));
      } else {
        auto const key = receives[r++];
        auto const& expected = coming[key][taken[key]++];
        received.emplace_back(expected, Bytes(expected.size));
        requests.push_back(messenger.receive(std::span(received.back().second), key.first, key.second));
      }
    }
    std::shuffle(requests.begin(), requests.end(), engine);
    for (auto const& request : requests) request.wait();
    for (auto const& [expected, got] : received) {
      ASSERT_EQ(content(expected.from, expected.number, expected.size), got)
          << "message " << expected.number << " from " << expected.from << " with tag " << expected.tag;
    }
    world.barrier();
  });
}

TEST_P(Tagged, AnySourceGetsEveryMessageOnceAndThoseOfARankInOrder) {
  auto const [ranks, seed] = GetParam();
  constexpr int kEach = 12;
  run_thread_ranks(ranks, [&, seed = seed](Communicator& world) {
    constexpr std::size_t kSize = 3000;
    Messenger messenger(world);
    if (world.rank() != 0) {
      std::mt19937 engine(seed + static_cast<unsigned>(world.rank()));
      for (int i = 0; i < kEach; ++i) {
        if (engine() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(engine() % 300));
        auto const bytes = content(world.rank(), i, kSize);
        messenger.send(std::span(bytes), 0, 5).wait();
      }
      return world.barrier(), void();
    }
    std::vector<int> next(static_cast<std::size_t>(world.size()));
    for (int i = 0; i < kEach * (world.size() - 1); ++i) {
      Bytes got(kSize);
      auto const request = messenger.receive(std::span(got), Messenger::kAnyRank, 5);
      request.wait();
      auto const from = request.source();
      ASSERT_TRUE(from > 0 && from < world.size()) << from;
      ASSERT_EQ(content(from, next[static_cast<std::size_t>(from)]++, kSize), got);
    }
    world.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(RanksAndSeeds, Tagged,
                         testing::Combine(testing::Values(2, 3, 5, 8), testing::Values(1U, 2U, 3U)));

TEST(Messenger, LongMessagesCrossInWhateverOrderRanksWait) {
  run_thread_ranks(3, [](Communicator& world) {
    Messenger messenger(world);
    auto const mine = content(world.rank(), 0, 2000000);
    std::vector<Bytes> got(3, Bytes(2000000));
    std::vector<Messenger::Request> requests;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == world.rank()) continue;
      requests.push_back(messenger.send(std::span(mine), peer));
      requests.push_back(messenger.receive(std::span(got[static_cast<std::size_t>(peer)]), peer));
    }
    for (auto const& request : requests) request.wait();
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != world.rank()) {
        ASSERT_EQ(content(peer, 0, 2000000), got[static_cast<std::size_t>(peer)]);
      }
    }
    world.barrier();
  });
}

TEST(Messenger, NobodyNeedsToWaitForALongMessageToLeave) {
  run_thread_ranks(2, [](Communicator& world) {
    Messenger messenger(world);
    Bytes bytes = content(0, 0, 3000000);
    if (world.rank() == 0) {
      auto const request = messenger.send(std::span(bytes), 1, 9);
      world.barrier();  // which rank 1 reaches with the message
      request.wait();
    } else {
      Bytes got(bytes.size());
      messenger.receive(std::span(got), 0, 9).wait();
      EXPECT_EQ(bytes, got);
      world.barrier();
    }
    world.barrier();
  });
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
      auto const sent = content(0, 0, 50);
      messenger.send(std::span(sent), 1).wait();
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
          auto const mine = content(world.rank(), tag * 1000 + i, size);
          Bytes got(size);
          auto const send = messenger.send(std::span(mine), peer, tag);
          messenger.receive(std::span(got), peer, tag).wait();
          send.wait();
          ASSERT_EQ(content(peer, tag * 1000 + i, size), got);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    world.barrier();
  });
}

TEST(MessengerErrors, ADifferentSizeFailsThatReceiveOnly) {
  run_thread_ranks(2, [](Communicator& world) {
    for (std::size_t const size : {std::size_t{10}, std::size_t{500000}}) {
      Messenger messenger(world);
      std::vector<float> values(size, 1.0F);
      std::vector<float> after(3, 2.0F);
      if (world.rank() == 0) {
        auto const first = messenger.send(std::span(values), 1, 4);
        messenger.send(std::span(after), 1, 4).wait();
        first.wait();
      } else {
        try {
          messenger.receive(std::span(values).first(7), 0, 4).wait();
          ADD_FAILURE() << "noticed nothing";
        } catch (Error const& error) {
          EXPECT_EQ(ErrorCode::mismatch, error.code());
          EXPECT_NE(std::string::npos, std::string(error.what()).find("from rank 0 with tag 4")) << error.what();
        }
        std::vector<float> got(3);
        messenger.receive(std::span(got), 0, 4).wait();
        EXPECT_EQ(after, got);
      }
      world.barrier();
    }
  });
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
      EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
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
