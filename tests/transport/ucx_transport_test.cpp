#include "transport/ucx/ucx_transport.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "harness/ranks.hpp"

namespace weft::ucx {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::array<std::byte, 1000>;

/// Moves on until `ready`; false where that does not come.
bool progress_until(Channel& channel, std::function<bool()> const& ready) {
  auto const deadline = Clock::now() + std::chrono::seconds(60);
  while (!ready()) {
    if (Clock::now() > deadline) return false;
    channel.listen();
    std::this_thread::yield();
  }
  return true;
}

void meet(Bootstrap& bootstrap) {
  std::byte const here{};
  (void)bootstrap.all_gather(std::span(&here, 1));
}

/// Rank 1 has begun to receive when `end` ends that; then the message comes, which it must not write anywhere.
void expect_untouched(std::function<void(Channel&, UcxTransport&)> const& end) {
  setenv("UCX_TLS", "tcp,self", 1);
  test::run_thread_bootstraps(2, [&](std::shared_ptr<Bootstrap> const& bootstrap) {
    ChannelOptions options;
    options.devices = "lo";
    Channel channel(*bootstrap, options);
    channel.connect(Purpose());
    UcxTransport transport(channel);
    Bytes memory;
    if (bootstrap->rank() == 1) {
      memory.fill(std::byte{1});
      static_cast<void>(transport.start_recv(0, memory));
      end(channel, transport);
      meet(*bootstrap);
      EXPECT_TRUE(progress_until(channel, [&] { return channel.contradicted(0); }));
      EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{1}), static_cast<std::ptrdiff_t>(memory.size()));
    } else {
      memory.fill(std::byte{2});
      meet(*bootstrap);
      Pending operation;
      channel.worker().start_send(operation, 1, {Tag::Kind::step, 0}, memory);
      channel.contradict(1);  // which tells rank 1 that the message has come
      EXPECT_TRUE(progress_until(channel, [&] { return operation.is_done(); }));
      EXPECT_EQ(operation.status(), UCS_OK);
    }
    meet(*bootstrap);
  });
}

void expect_aborted(std::function<void()> const& body) {
  try {
    body();
    ADD_FAILURE() << "no error";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
  }
}

TEST(UcxTransport, MemoryIsNotWrittenOnceASendHasThrownAFailure) {
  expect_untouched([](Channel& channel, UcxTransport& transport) {
    channel.fail(ErrorCode::aborted, "enough");
    Bytes const more{};
    expect_aborted([&] { static_cast<void>(transport.start_send(0, more)); });
  });
}

TEST(UcxTransport, MemoryIsNotWrittenOnceAReceiveHasThrownAFailure) {
  expect_untouched([](Channel& channel, UcxTransport& transport) {
    channel.fail(ErrorCode::aborted, "enough");
    Bytes more;
    expect_aborted([&] { static_cast<void>(transport.start_recv(0, more)); });
  });
}

TEST(UcxTransport, MemoryIsNotWrittenOnceItsRankCannotGoOn) {
  expect_untouched([](Channel& channel, UcxTransport& transport) {
    transport.fail(ErrorCode::out_of_memory, "no memory left");
    EXPECT_TRUE(channel.has_failed());
  });
}

/// Sends a message to `peer` and receives its own.
void greet(Channel& channel, int peer) {
  std::array<std::byte, 8> mine{};
  std::array<std::byte, 8> theirs{};
  Pending sent;
  Pending received;
  channel.worker().start_recv(received, peer, {Tag::Kind::step, peer}, theirs);
  channel.worker().start_send(sent, peer, {Tag::Kind::step, channel.rank()}, mine);
  EXPECT_TRUE(progress_until(channel, [&] { return sent.is_done() && received.is_done(); }));
}

/// Rank 1 fails, and only rank 0 hears of it, which leaves. Rank 2 is to blame neither.
TEST(UcxChannel, WhoLeavesAfterAFailureTellsIt) {
  setenv("UCX_TLS", "tcp,self", 1);
  test::run_thread_bootstraps(3, [&](std::shared_ptr<Bootstrap> const& bootstrap) {
    ChannelOptions options;
    options.devices = "lo";
    auto channel = std::make_unique<Channel>(*bootstrap, options);
    auto const rank = bootstrap->rank();
    // Ranks 1 and 2 are not connected, and do not become so before rank 1 moves on.
    for (int peer = rank == 0 ? 1 : 0; peer < (rank == 0 ? 3 : 1); ++peer) greet(*channel, peer);
    meet(*bootstrap);
    if (rank == 1) channel->fail(ErrorCode::peer_lost, "rank 7 is lost");
    if (rank == 0) {
      EXPECT_TRUE(progress_until(*channel, [&] { return channel->has_failed(); }));
      channel.reset();
    }
    meet(*bootstrap);
    if (rank == 2) {
      Purpose call;
      call.sequence = 1;
      try {
        channel->await(
            call, [] { return false; }, 0);
        ADD_FAILURE() << "no error";
      } catch (Error const& error) {
        EXPECT_STREQ(error.what(), "rank 7 is lost");
      }
    }
    meet(*bootstrap);
    if (rank != 0) greet(*channel, 3 - rank);  // UCX 1.13 stops the process where a worker goes that half is connected
    meet(*bootstrap);
  });
}

/// Opens so many files as the machine lets this process; false where that is less than `enough`.
bool may_open(rlim_t enough) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_cur = limit.rlim_max;
  return limit.rlim_max >= enough && setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/// Whose ranks are connected to few others, so that none connects to ranks that may be ending.
TEST(UcxChannel, AFailureGoesRoundManyRanks) {
  constexpr int kRanks = 70;
  constexpr int kAcquaintances = 14;  // 1, 2, 4, … 64 away, either way
  if (!may_open(4096)) GTEST_SKIP() << "too few files may be open here";
  setenv("UCX_TLS", "tcp,self", 1);
  test::run_thread_bootstraps(kRanks, [&](std::shared_ptr<Bootstrap> const& bootstrap) {
    ChannelOptions options;
    options.devices = "lo";
    Channel channel(*bootstrap, options);
    channel.connect(Purpose());
    meet(*bootstrap);
    if (bootstrap->rank() == 3) channel.fail(ErrorCode::peer_lost, "rank 7 is lost");
    Purpose call;
    call.sequence = 1;
    try {
      channel.await(
          call, [] { return false; }, 0);
      ADD_FAILURE() << "no error";
    } catch (Error const& error) {
      EXPECT_STREQ(error.what(), "rank 7 is lost");
    }
    meet(*bootstrap);
    auto connected = 0;
    for (int peer = 0; peer < kRanks; ++peer) connected += channel.worker().is_connected(peer) ? 1 : 0;
    EXPECT_LE(connected, kAcquaintances);
    meet(*bootstrap);
  });
}

}  // namespace
}  // namespace weft::ucx
