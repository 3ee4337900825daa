#include <gtest/gtest.h>

#include "harness/ranks.hpp"

namespace weft::test {
namespace {

TEST(Ordering, StreamsAndInlineCallsTakeEffectInCallOrder) {
  run_thread_ranks(2, [](Communicator& world) {
    auto first = Stream::cpu({.name = "first"});
    auto second = Stream::cpu({.name = "second"});
    std::vector<std::int64_t> value{world.rank() + 1};
    std::span<std::int64_t> const view(value);
    for (int round = 0; round < 200; ++round) {
      value[0] = world.rank() + 1;
      auto a = world.all_reduce(view, view, ReduceOp::sum, {.stream = first});    // 3
      auto b = world.all_reduce(view, view, ReduceOp::prod, {.stream = second});  // 9
      world.all_reduce(view, view, ReduceOp::sum);                                // 18, inline after both
      a.wait();
      b.wait();
      ASSERT_EQ(18, value[0]);
    }
  });
}

TEST(Ordering, TwoCommunicatorsInterleaveFreely) {
  run_thread_ranks(2, [](Communicator& world) {
    auto other = world.duplicate({});
    auto stream = Stream::cpu({.name = "other"});
    std::vector<float> a(5000, 1.0F);
    std::vector<float> b(5000, 1.0F);
    std::vector<Work> works;
    for (int round = 0; round < 20; ++round) {
      // Opposite issue order on the two ranks: independent communicators must not wait for one another.
      if (world.rank() == 0) {
        works.push_back(other.all_reduce(std::span(b), std::span(b), ReduceOp::avg, {.stream = stream}));
        world.all_reduce(std::span(a), std::span(a), ReduceOp::avg);
      } else {
        world.all_reduce(std::span(a), std::span(a), ReduceOp::avg);
        works.push_back(other.all_reduce(std::span(b), std::span(b), ReduceOp::avg, {.stream = stream}));
      }
    }
    for (auto const& work : works) work.wait();
    EXPECT_EQ(1.0F, a[4999]);
    EXPECT_EQ(1.0F, b[4999]);
  });
}

TEST(Ordering, ErrorsOfStreamCallsSurfaceFromWait) {
  run_thread_ranks(2, [](Communicator& world) {
    auto stream = Stream::cpu();
    std::vector<float> a(16);
    auto const mine = std::span(a).first(world.rank() == 0 ? 16 : 15);
    auto work = world.all_reduce(mine, mine, ReduceOp::sum, {.stream = stream});
    try {
      work.wait();
      ADD_FAILURE();
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::mismatch, error.code());
    }
    EXPECT_THROW(world.all_reduce(std::span(a), std::span(a).first(3), ReduceOp::sum, {.stream = stream}), Error);
  });
}

}  // namespace
}  // namespace weft::test
