#include "core/topology.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>

#include "weft/error.hpp"

namespace weft {
namespace {

TEST(Topology, DescribesThisProcess) {
  Topology const topology = discover_topology();
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  EXPECT_EQ(topology.cpus.size(), static_cast<std::size_t>(CPU_COUNT(&mask)));
  for (int const cpu : topology.cpus) EXPECT_TRUE(CPU_ISSET(cpu, &mask)) << cpu;
  EXPECT_GE(topology.cores, 1);
  EXPECT_LE(static_cast<std::size_t>(topology.cores), topology.cpus.size());
  EXPECT_GE(topology.l2_bytes, std::size_t{64} << 10);
  EXPECT_GE(topology.l3_bytes, std::size_t{256} << 10);
}

TEST(Topology, BindingMovesTheCallingThreadOnly) {
  std::vector<int> const cpus = discover_topology().cpus;
  std::thread([&] {
    bind_this_thread({cpus.back()});
    EXPECT_EQ(sched_getcpu(), cpus.back());
  }).join();
  EXPECT_EQ(discover_topology().cpus, cpus);
}

TEST(Topology, BindingToNothingIsAnError) {
  EXPECT_THROW(bind_this_thread({}), Error);
  EXPECT_THROW(bind_this_thread({-1}), Error);
  EXPECT_THROW(bind_this_thread({1 << 19}), Error);
}

TEST(ShareOfCpus, PartitionsWhenThereAreEnough) {
  for (int cpus = 1; cpus <= 40; ++cpus) {
    std::vector<int> numbers(static_cast<std::size_t>(cpus));
    std::iota(numbers.begin(), numbers.end(), 100);
    for (int ranks = 1; ranks <= cpus; ++ranks) {
      std::vector<int> joined;
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<int> const share = share_of_cpus(numbers, rank, ranks);
        EXPECT_GE(static_cast<int>(share.size()), cpus / ranks);
        EXPECT_LE(static_cast<int>(share.size()), cpus / ranks + 1);
        joined.insert(joined.end(), share.begin(), share.end());
      }
      ASSERT_EQ(joined, numbers) << cpus << " CPUs, " << ranks << " ranks";
    }
  }
}

TEST(ShareOfCpus, WrapsWhenThereAreTooFew) {
  EXPECT_EQ(share_of_cpus({4, 7}, 0, 3), std::vector<int>{4});
  EXPECT_EQ(share_of_cpus({4, 7}, 1, 3), std::vector<int>{7});
  EXPECT_EQ(share_of_cpus({4, 7}, 2, 3), std::vector<int>{4});
  EXPECT_THROW((void)share_of_cpus({}, 0, 1), Error);
  EXPECT_THROW((void)share_of_cpus({1}, 1, 1), Error);
}

}  // namespace
}  // namespace weft
