// When ranks that wait for one another at the start line give way.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <thread>
#include <vector>

#include "common/board.hpp"

namespace weft::perf {
namespace {

/// The boards' crowded() of ranks that are threads, each bound to one processor.
std::vector<bool> crowded(std::vector<int> const& cpus) {
  auto const ranks = static_cast<int>(cpus.size());
  std::barrier all(ranks);
  std::array<std::int64_t, 2> told{};
  std::vector<char> found(cpus.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(static_cast<std::size_t>(cpus[static_cast<std::size_t>(rank)]), &one);
      sched_setaffinity(0, sizeof one, &one);
      Meeting meeting;
      meeting.rank = rank;
      meeting.ranks = ranks;
      meeting.barrier = [&] { all.arrive_and_wait(); };
      meeting.broadcast = [&](std::span<std::int64_t> values) {
        if (rank == 0) std::copy(values.begin(), values.end(), told.begin());
        all.arrive_and_wait();
        std::copy_n(told.begin(), values.size(), values.begin());
        all.arrive_and_wait();
      };
      Board const board(meeting);
      found[static_cast<std::size_t>(rank)] = board.crowded() ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  return {found.begin(), found.end()};
}

std::vector<int> allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST(Board, IsCrowdedWhereRanksShareWhatTheyMayRunOn) {
  auto const cpu = allowed().front();
  EXPECT_EQ(crowded({cpu, cpu}), (std::vector<bool>{true, true}));
  EXPECT_EQ(crowded({cpu}), (std::vector<bool>{false}));
}

TEST(Board, IsNotWhereEachIsBoundToItsOwn) {
  auto const cpus = allowed();
  if (cpus.size() < 2) GTEST_SKIP() << "one processor";
  EXPECT_EQ(crowded({cpus[0], cpus[1]}), (std::vector<bool>{false, false}));
  EXPECT_EQ(crowded({cpus[0], cpus[1], cpus[0]}), (std::vector<bool>{true, true, true}));
}

}  // namespace
}  // namespace weft::perf
