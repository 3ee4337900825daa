#include <gtest/gtest.h>

#include <thread>

#include "harness/ranks.hpp"

namespace weft::test {
namespace {

int sum_over(Communicator& world, int value) {
  std::int32_t const mine = value;
  std::int32_t sum = 0;
  world.all_reduce(std::span(&mine, 1), std::span(&sum, 1), ReduceOp::sum);
  return sum;
}

TEST(Split, ByColorAndKey) {
  run_thread_ranks(7, [](Communicator& world) {
    auto const color = world.rank() % 3;
    auto part = world.split(color, -world.rank());
    ASSERT_TRUE(part);
    auto const members = color == 0 ? 3 : 2;
    EXPECT_EQ(members, part->size());
    EXPECT_EQ(members - 1 - world.rank() / 3, part->rank()) << "keys fall, so ranks are the other way round";
    int expected = 0;
    for (int r = color; r < 7; r += 3) expected += r;
    EXPECT_EQ(expected, sum_over(*part, world.rank()));
    EXPECT_EQ(21, sum_over(world, world.rank())) << "the parent goes on";
  });
}

TEST(Split, EqualKeysKeepTheOrder) {
  run_thread_ranks(4, [](Communicator& world) {
    auto half = world.split(world.rank() / 2);
    EXPECT_EQ(world.rank() % 2, half->rank());
    auto single = half->split(half->rank());
    EXPECT_EQ(1, single->size());
    EXPECT_EQ(world.rank(), sum_over(*single, world.rank()));
  });
}

TEST(Split, RanksMayStayOutside) {
  run_thread_ranks(5, [](Communicator& world) {
    auto part = world.split(world.rank() == 2 ? Communicator::kNoColor : 9);
    EXPECT_EQ(world.rank() != 2, part.has_value());
    if (part) {
      EXPECT_EQ(8, sum_over(*part, world.rank()));
    }
  });
}

TEST(Split, NegativeColorsAreRefusedByTheRankThatPassedThem) {
  run_thread_ranks(1, [](Communicator& world) { EXPECT_THROW(static_cast<void>(world.split(-2)), Error); });
}

TEST(Split, RanksThatMakeAnotherCallAreToldOfIt) {
  run_thread_ranks(2, [](Communicator& world) {
    float value = 1;
    try {
      if (world.rank() == 0)
        static_cast<void>(world.split(0));
      else
        world.all_reduce({&value, 1, DataType::f32}, {&value, 1, DataType::f32}, ReduceOp::sum);
      ADD_FAILURE() << "nothing was thrown";
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::mismatch, error.code());
      EXPECT_NE(std::string::npos, std::string(error.what()).find("of a split, duplicate or connect)")) << error.what();
    }
  });
}

TEST(Split, FamiliesWorkAtOnceFromManyThreads) {
  // Every rank is in a row and a column of a grid and uses both, and the world, from threads of their own.
  run_thread_ranks(4, [](Communicator& world) {
    auto row = world.split(world.rank() / 2);
    auto column = world.split(world.rank() % 2);
    auto const many = [](Communicator& group, int value, int expected) {
      for (int i = 0; i < 200; ++i) ASSERT_EQ(expected, sum_over(group, value));
    };
    std::thread rows([&] { many(*row, world.rank(), world.rank() / 2 * 4 + 1); });
    std::thread columns([&] { many(*column, world.rank(), world.rank() % 2 * 2 + 2); });
    many(world, 1, 4);
    rows.join();
    columns.join();
  });
}

}  // namespace
}  // namespace weft::test
