#include "core/rank_hosts.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(RankHosts, ReportsSayWhereARankIs) {
  RankHosts const two{{0, 0, 1}, {"node1", "node1", "node7"}};
  EXPECT_TRUE(two.are_several());
  EXPECT_TRUE(two.are_apart(1, 2));
  EXPECT_FALSE(two.are_apart(1, 0));
  EXPECT_EQ(" (rank 2 is on node7)", two.where_is(2));
  EXPECT_EQ("", two.where_is(-1));
  EXPECT_EQ("", two.where_is(3));
  RankHosts const one{{0, 0}, {"node1", "node1"}};
  EXPECT_FALSE(one.are_several());
  EXPECT_EQ("", one.where_is(1)) << "everybody knows";
  EXPECT_EQ("", RankHosts{}.where_is(0));
}

}  // namespace
}  // namespace weft
