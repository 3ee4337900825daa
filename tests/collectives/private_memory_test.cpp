// Large private buffers, which the kernel copies out of the peers' memory where it may, and which are staged elsewhere.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "collectives/shm/peer_memory.hpp"
#include "harness/ranks.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kPart = 600'000;        // elements: several blocks of what is staged
constexpr std::size_t kRootedPart = 600'000;  // above what is fed by one rank to others, or to one
constexpr int kManyGivers = 9;                // more than one root is fed by where they share cores

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

/// From one rank to all others, and back. The root's own part stays where it is, so that it is done long before the
/// others, and uses its buffer for something else as soon as a call returns.
int exchange_with_root(Communicator& world) {
  auto const rank = world.rank();
  auto const ranks = world.size();
  std::vector<std::uint32_t> all(static_cast<std::size_t>(ranks) * kRootedPart);
  std::vector<std::uint32_t> part(kRootedPart);
  for (int root = 0; root < ranks; ++root) {
    auto const is_root = rank == root;
    auto const whole = is_root ? std::span(all) : std::span<std::uint32_t>();
    auto const mine =
        is_root ? whole.subspan(static_cast<std::size_t>(root) * kRootedPart, kRootedPart) : std::span(part);
    for (std::size_t i = 0; i < whole.size(); ++i)
      all[i] = value(root, static_cast<int>(i / kRootedPart), i % kRootedPart);
    world.scatter(std::span<std::uint32_t const>(whole), mine, root);
    for (auto const where : {std::size_t{0}, kRootedPart / 2, kRootedPart - 1}) {
      if (mine[where] != value(root, rank, where)) return 1;
    }
    std::fill(whole.begin(), whole.end(), 0);
    for (std::size_t i = 0; i < kRootedPart; ++i) {
      if (!is_root && mine[i] != value(root, rank, i)) return 2;
      mine[i] = value(rank, root + 1, i);
    }
    world.gather(std::span<std::uint32_t const>(mine), whole, root);
    for (std::size_t i = whole.size(); i > 0; --i) {
      auto const at = i - 1;
      if (whole[at] != value(static_cast<int>(at / kRootedPart), root + 1, at % kRootedPart)) return 3;
    }
  }
  return 0;
}

/// What a broadcast's root overwrites once it returns was read, and what it writes itself is there.
int broadcast_from_all(Communicator& world) {
  std::vector<std::uint32_t> all(kRootedPart + 1);  // no whole number of cache lines
  for (int round = 0; round < 12; ++round) {
    auto const root = round % world.size();
    auto const wanted = static_cast<std::uint32_t>(round + 1);
    if (world.rank() == root) std::fill(all.begin(), all.end(), wanted);
    world.broadcast(std::span(all), root);
    auto const wrong = std::find_if(all.begin(), all.end(), [&](std::uint32_t word) { return word != wanted; });
    if (world.rank() == root) std::fill(all.begin(), all.end(), 0);
    if (wrong != all.end()) return 1;
  }
  return 0;
}

TEST(PrivateMemory, OneRanksBuffersArriveWhetherItMayBeReachedOrNot) {
  for (int const ranks : {2, 3, kManyGivers}) {
    for (bool const reaches : {true, false}) {
      Config config;
      config.read_peers = reaches;
      expect_all_succeeded(run_forked_ranks(ranks, exchange_with_root, {.config = config}));
      expect_all_succeeded(run_forked_ranks(ranks, broadcast_from_all, {.config = config}));
    }
  }
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

TEST(PrivateMemory, WhatCannotBeWrittenFailsTheCallOnEveryRank) {
  auto const gather_into_pages = [](Communicator& world) {
    auto const bytes = kManyGivers * kPart * sizeof(std::uint32_t);
    auto* const pages = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return 1;
    auto const all = std::span(static_cast<std::uint32_t*>(pages), kManyGivers * kPart);
    std::vector<std::uint32_t> part(kPart);
    try {
      if (world.rank() != 1) world.gather(std::span<std::uint32_t const>(part), std::span<std::uint32_t>(), 1);
      if (world.rank() == 1) world.gather(std::span<std::uint32_t const>(all.subspan(kPart, kPart)), all, 1);
    } catch (Error const& error) {
      std::string const what = error.what();
      std::fprintf(stderr, "%s\n", error.what());
      auto const named = what.find("cannot be written to") != std::string::npos;
      return error.code() == ErrorCode::system && named ? 0 : 3;
    }
    return 2;
  };
  // Without what was measured of this machine so much is pushed.
  expect_all_succeeded(run_forked_ranks(kManyGivers, gather_into_pages, {.config = Config{}}));
}

TEST(PrivateMemory, AnotherProcessUnderTheSameNumberIsNotRead) {
  auto mine = shm::describe_this_process();
  EXPECT_TRUE(shm::can_reach(mine));
  mine.pid = ::getppid();  // may be readable, but does not hold this process's word
  EXPECT_FALSE(shm::can_reach(mine));
  mine.pid = 0x7fffffff;
  EXPECT_FALSE(shm::can_reach(mine));
  std::byte byte{};
  EXPECT_THROW(shm::read_memory(0x7fffffff, &byte, &byte, 1), Error);
  EXPECT_THROW(shm::write_memory(0x7fffffff, &byte, &byte, 1), Error);
}

}  // namespace
}  // namespace weft::test
