// Large private buffers, which the kernel copies out of the peers' memory where it may, and which are staged elsewhere.
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>

#include "collectives/shm/peer_memory.hpp"
#include "harness/ranks.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kPart = 600'000;  // elements: between the limits of fetching for two and three ranks

std::uint32_t value(int from, int to, std::size_t i) {
  return static_cast<std::uint32_t>(from * 1'000'003 + to * 10'007) + static_cast<std::uint32_t>(i);
}

/// What every rank sends to every other, and to all.
int exchange(Communicator& world, bool first_in_place) {
  auto const rank = world.rank();
  auto const ranks = world.size();
  std::vector<std::uint32_t> send(static_cast<std::size_t>(ranks) * kPart);
  std::vector<std::uint32_t> recv(send.size());
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < send.size(); ++i) send[i] = value(rank, static_cast<int>(i / kPart) + round, i % kPart);
    auto const in_place = first_in_place && rank == 0;
    auto const result = std::span(in_place ? send : recv);
    world.all_to_all(std::span<std::uint32_t const>(send), result);
    for (std::size_t i = 0; i < result.size(); ++i) {
      auto const expected = value(static_cast<int>(i / kPart), rank + round, i % kPart);
      if (result[i] != expected) return 1;
    }
    for (std::size_t i = 0; i < kPart; ++i) send[i] = value(rank, round, i);
    world.all_gather(std::span<std::uint32_t const>(send).first(kPart), std::span(recv));
    std::fill(send.begin(), send.end(), 0);  // the others have read it
    for (std::size_t i = 0; i < recv.size(); ++i) {
      if (recv[i] != value(static_cast<int>(i / kPart), round, i % kPart)) return 2;
    }
  }
  return 0;
}

TEST(PrivateMemory, LargeBuffersArriveWhetherThePeersMayBeReadOrNot) {
  for (int const ranks : {2, 3}) {
    for (bool const reads : {true, false}) {
      for (bool const in_place : {false, true}) {
        Config config;
        config.read_peers = reads;
        auto const exits =
            run_forked_ranks(ranks, [&](Communicator& world) { return exchange(world, in_place); }, {.config = config});
        expect_all_succeeded(exits);
      }
    }
  }
}

TEST(PrivateMemory, OneRankThatDoesNotWantToReadsNobody) {
  run_thread_bootstraps(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    Config config;
    config.read_peers = bootstrap->rank() == 0;
    auto world = Communicator::create(bootstrap, {.config = config});
    EXPECT_EQ(0, exchange(world, false));
  });
}

TEST(PrivateMemory, AnotherProcessUnderTheSameNumberIsNotRead) {
  auto mine = shm::describe_this_process();
  EXPECT_TRUE(shm::can_read(mine));
  mine.pid = ::getppid();  // may be readable, but does not hold this process's word
  EXPECT_FALSE(shm::can_read(mine));
  mine.pid = 0x7fffffff;
  EXPECT_FALSE(shm::can_read(mine));
  std::byte byte{};
  EXPECT_THROW(shm::read_memory(0x7fffffff, &byte, &byte, 1), Error);
}

}  // namespace
}  // namespace weft::test
