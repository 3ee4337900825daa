// How far two ranks are from each other: a class that decides which costs hold for them.
#include "collectives/shm/distance.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>

#include "harness/ranks.hpp"

namespace weft::shm {
namespace {

TEST(Distance, IsAPowerOfFour) {
  EXPECT_EQ(64U, distance_class(0));
  EXPECT_EQ(64U, distance_class(64));
  EXPECT_EQ(256U, distance_class(64.1));
  EXPECT_EQ(1024U, distance_class(700));
  EXPECT_EQ(4096U, distance_class(1025));
}

TEST(Distance, RankZeroMeasuresItAndNobodyWaitsForLong) {
  for (int const ranks : {2, 3, 5}) {
    weft::test::expect_all_succeeded(
        weft::test::run_forked_bootstraps(ranks, [](std::shared_ptr<Bootstrap> const& bootstrap) {
          Exchange const exchange = [&](std::span<std::byte const> bytes) { return bootstrap->all_gather(bytes); };
          auto const distance = measure_distance(bootstrap->rank(), bootstrap->size(), exchange);
          // 0 where ranks take turns on a core
          auto const is_class = distance == 0 || (distance >= 64 && (distance & (distance - 1)) == 0);
          return bootstrap->rank() == 0 ? (is_class ? 0 : 1) : (distance == 0 ? 0 : 2);
        }));
  }
}

TEST(Distance, ARankThatDoesNotAnswerIsNotWaitedFor) {
  weft::test::expect_all_succeeded(
      weft::test::run_forked_bootstraps(2, [](std::shared_ptr<Bootstrap> const& bootstrap) {
        Exchange const exchange = [&](std::span<std::byte const> bytes) { return bootstrap->all_gather(bytes); };
        if (bootstrap->rank() == 0) return measure_distance(0, 2, exchange) == 0 ? 0 : 1;
        auto const segment = create_segment(1, 2, 2 * distance_bytes(), distance_bytes(), exchange);
        return segment != nullptr ? 0 : 2;
      }));
}

}  // namespace
}  // namespace weft::shm
