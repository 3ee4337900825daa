#include "weft/event.hpp"

#include <gtest/gtest.h>

#include <future>
#include <random>
#include <vector>

#include "error_matchers.hpp"
#include "runtime/deadline.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(Event, UnrecordedCountsAsReached) {
  Event const event;
  EXPECT_TRUE(event.query());
  event.synchronize();
  auto stream = Stream::cpu();
  event.wait_on(stream);
  stream.synchronize();
}

TEST(Event, IsReachedAfterEverythingEnqueuedBeforeIt) {
  auto stream = Stream::cpu();
  std::promise<void> gate;
  int value = 0;
  stream.enqueue([&value, opened = gate.get_future().share()] {
    opened.wait();
    value = 7;
  });
  Event event;
  event.record(stream);
  auto const copy = event;  // copies share the point
  EXPECT_FALSE(copy.query());
  gate.set_value();
  copy.synchronize();
  EXPECT_EQ(value, 7);
  EXPECT_TRUE(event.query());
}

TEST(Event, RecordingAgainReplacesTheMark) {
  auto stream = Stream::cpu();
  Event event;
  event.record(stream);
  event.synchronize();
  std::promise<void> gate;
  stream.enqueue([opened = gate.get_future().share()] { opened.wait(); });
  event.record(stream);
  EXPECT_FALSE(event.query());
  gate.set_value();
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(Event, WaitOnChainsStreamsInTheRecordedOrder) {
  // A random walk over streams: each hop waits for the hop before it. Without the waits the log is out of order.
  constexpr int kHops = 500;
  std::mt19937 random(11);
  std::vector<Stream> streams;
  for (int i = 0; i < 5; ++i) streams.push_back(Stream::cpu());
  std::vector<int> log;  // not guarded: the events order the writers
  Event last;
  for (int hop = 0; hop < kHops; ++hop) {
    auto& stream = streams[random() % streams.size()];
    last.wait_on(stream);
    stream.enqueue([&log, hop] { log.push_back(hop); });
    last.record(stream);
  }
  last.synchronize();
  ASSERT_EQ(log.size(), std::size_t{kHops});
  for (int hop = 0; hop < kHops; ++hop) EXPECT_EQ(log[static_cast<std::size_t>(hop)], hop);
}

TEST(Event, ElapsedTimeSpansTheWorkBetween) {
  auto stream = Stream::cpu();
  Event before;
  Event after;
  auto const start = Clock::now();
  before.record(stream);
  stream.enqueue([] { sleep_until(Clock::now() + 10ms); });
  after.record(stream);
  after.synchronize();
  EXPECT_GE(before.elapsed_until(after), 10ms);
  EXPECT_LE(before.elapsed_until(after), Clock::now() - start);
  EXPECT_EQ(after.elapsed_until(before), -before.elapsed_until(after));
}

TEST(Event, ElapsedTimeNeedsBothReached) {
  auto stream = Stream::cpu();
  Event recorded;
  recorded.record(stream);
  recorded.synchronize();
  Event const never;
  test::expect_error(ErrorCode::invalid_argument, {"elapsed_until"}, [&] { (void)recorded.elapsed_until(never); });
  std::promise<void> gate;
  stream.enqueue([opened = gate.get_future().share()] { opened.wait(); });
  Event pending;
  pending.record(stream);
  test::expect_error(ErrorCode::invalid_argument, {"elapsed_until"}, [&] { (void)recorded.elapsed_until(pending); });
  gate.set_value();
}

}  // namespace
}  // namespace weft
