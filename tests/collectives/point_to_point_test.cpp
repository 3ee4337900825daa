#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <numeric>
#include <random>
#include <thread>

#include "collectives/reference.hpp"
#include "harness/ranks.hpp"

namespace weft::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// What `from` sends to `to` as its message `number`.
Bytes message(int from, int to, int number, std::size_t size) {
  std::mt19937 engine(static_cast<unsigned>(from * 1000003 + to * 1009 + number));
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(engine());
  return bytes;
}

constexpr std::size_t kSizes[] = {0, 1, 48, 64, 1000, 5000, 65536, 300000, 1000001};

struct PointToPoint : testing::TestWithParam<int> {};

TEST_P(PointToPoint, RingShift) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    auto const right = (world.rank() + 1) % world.size();
    auto const left = (world.rank() + world.size() - 1) % world.size();
    int number = 0;
    for (auto const size : kSizes) {
      auto const sent = message(world.rank(), right, ++number, size);
      Bytes received(size);
      world.send_recv(std::span(sent), right, std::span(received), left);
      ASSERT_EQ(message(left, world.rank(), number, size), received) << size;
    }
  });
}

TEST_P(PointToPoint, MessagesMatchInOrder) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    if (world.rank() == 0) {
      for (int i = 0; i < 18; ++i) {
        for (int to = 1; to < world.size(); ++to) {
          auto const bytes = message(0, to, i, kSizes[static_cast<std::size_t>(i) % std::size(kSizes)]);
          world.send(std::span(bytes), to);
        }
      }
    } else {
      for (int i = 0; i < 18; ++i) {
        Bytes received(kSizes[static_cast<std::size_t>(i) % std::size(kSizes)]);
        world.recv(std::span(received), 0);
        ASSERT_EQ(message(0, world.rank(), i, received.size()), received) << i;
      }
    }
  });
}

TEST_P(PointToPoint, EverybodyToEverybodyOnStreamsBesideCollectives) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    auto const out = Stream::cpu();
    auto const in = Stream::cpu();
    constexpr int kRounds = 9;
    std::vector<Bytes> sent;
    std::vector<Bytes> received;
    std::vector<Work> works;
    sent.reserve(1000);
    received.reserve(1000);
    for (int round = 0; round < kRounds; ++round) {
      auto const size = kSizes[static_cast<std::size_t>(round) % std::size(kSizes)];
      for (int peer = 0; peer < world.size(); ++peer) {
        if (peer == world.rank()) continue;
        sent.push_back(message(world.rank(), peer, round, size));
        works.push_back(world.send(std::span(sent.back()), peer, {.stream = out}));
        received.emplace_back(size);
        works.push_back(world.recv(std::span(received.back()), peer, {.stream = in}));
      }
      float one = 1;
      float sum = 0;
      world.all_reduce(std::span(&one, 1), std::span(&sum, 1), ReduceOp::sum);
      ASSERT_EQ(static_cast<float>(world.size()), sum);
    }
    for (auto& work : works) work.wait();
    std::size_t next = 0;
    for (int round = 0; round < kRounds; ++round) {
      for (int peer = 0; peer < world.size(); ++peer) {
        if (peer == world.rank()) continue;
        auto const& got = received[next++];
        ASSERT_EQ(message(peer, world.rank(), round, got.size()), got) << "round " << round << " from " << peer;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PointToPoint, testing::Values(2, 3, 5, 8));

TEST(PointToPointErrors, ADifferentSizeIsAMismatchAtBothEnds) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> values(1000000);
    auto const attempt = [&] {
      if (world.rank() == 0) {
        world.send(std::span(values), 1);
      } else {
        world.recv(std::span(values).first(7), 0);
      }
    };
    for (int i = 0; i < 2; ++i) {
      try {
        attempt();
        ADD_FAILURE() << "rank " << world.rank() << " noticed nothing";
      } catch (Error const& error) {
        EXPECT_EQ(ErrorCode::mismatch, error.code()) << error.what();
      }
    }
    world.barrier();  // collectives go on
  });
}

TEST(PointToPointErrors, TheOtherMessagesOfAMismatchedCallArrive) {
  run_thread_ranks(3, [](Communicator& world) {
    std::vector<float> longer(1'000'000, static_cast<float>(world.rank()));
    std::vector<float> values(10, 5.0F);
    if (world.rank() == 0) {
      world.send(std::span(values), 1);
      EXPECT_THROW(world.send(std::span(longer), 1), Error);  // at both ends, now or later
    } else if (world.rank() == 1) {
      std::vector<float> other(20);
      try {
        world.send_recv(std::span(longer), 2, std::span(other), 0);
        ADD_FAILURE() << "received something else";
      } catch (Error const& error) {
        EXPECT_EQ(ErrorCode::mismatch, error.code()) << error.what();
      }
      world.send(std::span(values), 2);
    } else {
      world.recv(std::span(longer), 1);
      EXPECT_EQ(1.0F, longer.back());
      world.recv(std::span(values).first(10), 1);
      EXPECT_EQ(5.0F, values.back());
    }
    world.barrier();
  });
}

TEST(PointToPointErrors, BadPeersAreRefused) {
  run_thread_ranks(2, [](Communicator& world) {
    float value = 0;
    auto const view = std::span(&value, 1);
    EXPECT_THROW(world.send(view, 2), Error);
    EXPECT_THROW(world.send(view, -1), Error);
    EXPECT_THROW(world.send(view, world.rank()), Error);
    EXPECT_THROW(world.recv(view, world.rank()), Error);
    EXPECT_THROW(world.send_recv(view, 1 - world.rank(), view, 1 - world.rank()), Error);
    float other = 0;
    world.send_recv(view, world.rank(), std::span(&other, 1), world.rank());  // to oneself
  });
}

TEST(PointToPointErrors, AReceiverIsToldWhenTheSenderLeaves) {
  run_thread_ranks(2, [](Communicator& world) {
    if (world.rank() == 0) return;
    float value = 0;
    try {
      world.recv(std::span(&value, 1), 0);
      ADD_FAILURE() << "received from nobody";
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::peer_lost, error.code());
      EXPECT_NE(std::string::npos, std::string(error.what()).find("recv(1 × f32, from rank 0)")) << error.what();
    }
  });
}

TEST(PointToPointErrors, AReceiverGivesUpInTime) {
  run_thread_ranks(2, [](Communicator& world) {
    float value = 0;
    if (world.rank() == 1) {
      EXPECT_THROW(world.recv(std::span(&value, 1), 0, {.timeout = std::chrono::milliseconds(200)}), Error);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      EXPECT_THROW(world.barrier(), Error);
    }
  });
}

TEST(PointToPointOrder, WhatWasSentArrivesAfterItsSenderLeft) {
  run_thread_ranks(2, [](Communicator& world) {
    auto const bytes = message(0, 1, 0, 5000);
    if (world.rank() == 0) {
      world.send(std::span(bytes), 1);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      Bytes received(5000);
      world.recv(std::span(received), 0);
      EXPECT_EQ(bytes, received);
    }
  });
}

}  // namespace
}  // namespace weft::test
