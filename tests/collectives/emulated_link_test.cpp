#include "collectives/emulated_link.hpp"

#include <gtest/gtest.h>

#include "harness/ranks.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

Call call_of(Operation operation, std::size_t count) {
  return {.contract = {.count = count, .operation = operation, .dtype = DataType::f32}};
}

TEST(EmulatedLink, FollowsTheRingFormulas) {
  EmulatedLink const link{10us, 1e9};
  // 4 ranks, 1'000'000 bytes in all: 2·3·10 µs + 2·3/4·1000 µs.
  EXPECT_EQ(1560us, link_time(link, call_of(Operation::all_reduce, 250'000), 4));
  EXPECT_EQ(780us, link_time(link, call_of(Operation::reduce_scatter, 62'500), 4));
  EXPECT_EQ(780us, link_time(link, call_of(Operation::all_gather, 62'500), 4));
  EXPECT_EQ(1030us, link_time(link, call_of(Operation::broadcast, 250'000), 4));
  EXPECT_EQ(40us, link_time(link, call_of(Operation::barrier, 0), 4));
  EXPECT_EQ(0us, link_time(link, call_of(Operation::all_reduce, 250'000), 1));
}

TEST(EmulatedLink, ParsesAndRejects) {
  auto const link = EmulatedLink::parse("20us:2GB/s");
  EXPECT_EQ(20us, link.latency);
  EXPECT_DOUBLE_EQ(2e9, link.bytes_per_second);
  for (auto const* text : {"", "20us", "20us:", ":2GB/s", "20us:2", "20us:-2GB/s", "20us:0GB/s", "x:2GB/s",
                           "20us:2GB/sx", "20us:nanGB/s"}) {
    EXPECT_THROW(static_cast<void>(EmulatedLink::parse(text)), Error) << text;
  }
}

TEST(EmulatedLink, CollectivesLastAtLeastTheFormula) {
  CommunicatorOptions options;
  options.emulated_link = EmulatedLink{200us, 1e8};
  run_thread_ranks(
      2,
      [](Communicator& world) {
        auto buffer = world.allocate(250'000, DataType::f32);
        auto const start = std::chrono::steady_clock::now();
        for (int i = 0; i < 3; ++i) world.all_reduce(buffer.view(), buffer.view(), ReduceOp::sum);
        EXPECT_GE(std::chrono::steady_clock::now() - start, 3 * (400us + 10'000us));
      },
      options);
}

}  // namespace
}  // namespace weft::test
