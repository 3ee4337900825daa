#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "weft_topology/links.hpp"
#include "weft_topology/slow.hpp"

namespace weft::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kUsual = 10e9;

/// Ranks of hosts a, b, c, … two on each, all of whose links are alike.
struct Cluster {
  explicit Cluster(int hosts) {
    for (int host = 0; host < hosts; ++host) {
      names.push_back(std::string(1, static_cast<char>('a' + host)));
      host_of.insert(host_of.end(), 2, host);
    }
    for (auto const& [first, second] : pairs_of(host_of, 1000)) {
      bool const inside = host_of[static_cast<std::size_t>(first)] == host_of[static_cast<std::size_t>(second)];
      for (auto const& [from, to] : {std::pair(first, second), std::pair(second, first)}) {
        links.push_back({from, to, inside ? 1.0 : 20.0, inside ? 8 * kUsual : kUsual});
      }
    }
  }

  /// Slows the links from one host to another down; -1 stands for every host but the other one.
  void slow_down(int from, int to, double times) {
    for (auto& link : links) {
      int const a = host_of[static_cast<std::size_t>(link.from)];
      int const b = host_of[static_cast<std::size_t>(link.to)];
      bool const meant =
          from >= 0 && to >= 0 ? a == from && b == to : a != b && (from < 0 || a == from) && (to < 0 || b == to);
      if (meant) link.bytes_per_s /= times;
    }
  }

  [[nodiscard]] std::vector<std::string> slow() const { return find_slow(links, host_of, names); }

  std::vector<std::string> names;
  std::vector<int> host_of;
  std::vector<Link> links;
};

TEST(SlowLinks, EqualOnesAreNotNamed) {
  EXPECT_THAT(Cluster(1).slow(), IsEmpty());
  EXPECT_THAT(Cluster(2).slow(), IsEmpty());
  EXPECT_THAT(Cluster(5).slow(), IsEmpty());
}

TEST(SlowLinks, AHostThatSendsSlowlyIsNamedOnce) {
  Cluster cluster(4);
  cluster.slow_down(1, -1, 5);
  EXPECT_THAT(cluster.slow(), ElementsAre("out of b is slow: 2 GB/s at best, where 10 GB/s is usual"));
}

TEST(SlowLinks, AHostSlowBothWaysIsNamedForBoth) {
  Cluster cluster(3);
  cluster.slow_down(2, -1, 4);
  cluster.slow_down(-1, 2, 8);
  EXPECT_THAT(cluster.slow(),
              ElementsAre(HasSubstr("into c is slow: 1.25 GB/s"), HasSubstr("out of c is slow: 2.5 GB/s")));
}

TEST(SlowLinks, ASinglePairIsNamedWhereItsHostsAreFineOtherwise) {
  Cluster cluster(4);
  cluster.slow_down(0, 3, 3);
  EXPECT_THAT(cluster.slow(), ElementsAre("from a to d is slow: 3.33 GB/s, where 10 GB/s is usual"));
}

TEST(SlowLinks, WithTwoHostsTheDirectionIsNamed) {
  Cluster cluster(2);
  cluster.slow_down(1, 0, 2);
  EXPECT_THAT(cluster.slow(), ElementsAre("from b to a is slow: 5 GB/s, where 10 GB/s is usual"));
}

TEST(SlowLinks, AHostSlowInsideIsNamed) {
  Cluster cluster(3);
  cluster.slow_down(1, 1, 10);
  EXPECT_THAT(cluster.slow(), ElementsAre("inside b is slow: 8 GB/s at best, where 80 GB/s is usual"));
}

TEST(SlowLinks, ALateHostIsNamed) {
  Cluster cluster(4);
  for (auto& link : cluster.links) {
    int const a = cluster.host_of[static_cast<std::size_t>(link.from)];
    int const b = cluster.host_of[static_cast<std::size_t>(link.to)];
    if (a != b && (a == 3 || b == 3)) link.latency_us = 100;
  }
  EXPECT_THAT(cluster.slow(), ElementsAre("from and to d is late: 100.0 us at best, where 20.0 is usual"));
}

TEST(SlowLinks, TooManyPairsLeaveTheHostsFirstRanks) {
  std::vector<int> const host_of{0, 0, 1, 1, 2, 2};
  EXPECT_EQ(15U, pairs_of(host_of, 15).size());
  std::vector<std::pair<int, int>> const firsts{{0, 2}, {0, 4}, {2, 4}};
  EXPECT_EQ(firsts, pairs_of(host_of, 14));
}

}  // namespace
}  // namespace weft::topology
