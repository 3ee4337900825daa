#include "weft/work.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "error_matchers.hpp"
#include "runtime/deadline.hpp"
#include "runtime/work_state.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Holds a stream up until open().
class Gate {
 public:
  [[nodiscard]] std::function<void()> task() {
    return [gate = gate_] { gate.wait(); };
  }
  void open() { promise_.set_value(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> gate_ = promise_.get_future().share();
};

TEST(Work, DefaultIsComplete) {
  Work const work;
  EXPECT_TRUE(work.test());
  work.wait();
  EXPECT_TRUE(work.wait_for(0ns));
  EXPECT_EQ(work.error(), nullptr);
  EXPECT_EQ(work.timings().finished, Clock::time_point{});
  auto stream = Stream::cpu();
  work.wait_on(stream);
  stream.synchronize();
}

TEST(Work, CompletesAfterItsOperation) {
  auto stream = Stream::cpu();
  Gate gate;
  auto const work = enqueue_work(stream, gate.task());
  EXPECT_FALSE(work.test());
  EXPECT_EQ(work.error(), nullptr);
  EXPECT_EQ(work.timings().enqueued, Clock::time_point{});  // not meaningful yet
  gate.open();
  work.wait();
  EXPECT_TRUE(work.test());
}

TEST(Work, WaitForGivesUpAtItsLimitAndNotEarlier) {
  auto stream = Stream::cpu();
  Gate gate;
  auto const work = enqueue_work(stream, gate.task());
  EXPECT_FALSE(work.wait_for(0ns));
  EXPECT_FALSE(work.wait_for(-1s));
  auto const before = Clock::now();
  EXPECT_FALSE(work.wait_for(30ms));
  EXPECT_GE(Clock::now() - before, 30ms);
  gate.open();
  EXPECT_TRUE(work.wait_for(30s));
  EXPECT_TRUE(work.wait_for(std::chrono::nanoseconds::max()));
}

TEST(Work, WaitForAnUnlimitedTimeIsWait) {
  auto stream = Stream::cpu();
  Gate gate;
  auto const work = enqueue_work(stream, gate.task());
  auto waiter = std::async(std::launch::async, [work] { return work.wait_for(std::chrono::nanoseconds::max()); });
  EXPECT_EQ(waiter.wait_for(20ms), std::future_status::timeout);
  gate.open();
  EXPECT_TRUE(waiter.get());
}

TEST(Work, FailureReachesEveryWaiterEveryTime) {
  auto stream = Stream::cpu();
  Gate gate;
  auto const work = enqueue_work(stream, [hold = gate.task()] {
    hold();
    throw Error(ErrorCode::peer_lost, "rank 3 has gone");
  });
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([work] {
      test::expect_error(ErrorCode::peer_lost, {"rank 3"}, [&] { work.wait(); });
      test::expect_error(ErrorCode::peer_lost, {"rank 3"}, [&] { (void)work.wait_for(1s); });
    });
  }
  gate.open();
  for (auto& waiter : waiters) waiter.join();
  EXPECT_NE(work.error(), nullptr);
  EXPECT_TRUE(work.test());

  // The stream goes on.
  enqueue_work(stream, [] {}).wait();
}

TEST(Work, TimingsAreOrderedAndCoverTheOperation) {
  auto stream = Stream::cpu();
  auto const before = Clock::now();
  auto const work = enqueue_work(stream, [] { sleep_until(Clock::now() + 5ms); });
  work.wait();
  auto const timings = work.timings();
  EXPECT_LE(before, timings.enqueued);
  EXPECT_LE(timings.enqueued, timings.started);
  EXPECT_GE(timings.finished - timings.started, 5ms);
  EXPECT_LE(timings.finished, Clock::now());
}

TEST(Work, CapturesAreReleasedBeforeWaitReturns) {
  auto stream = Stream::cpu();
  for (int round = 0; round < 200; ++round) {
    auto owned = std::make_shared<int>(round);
    std::weak_ptr<int> const watch = owned;
    enqueue_work(stream, [owned = std::move(owned)] { (void)*owned; }).wait();
    ASSERT_TRUE(watch.expired());
  }
}

TEST(Work, WaitOnOrdersAnotherStreamWithoutBlockingTheCaller) {
  auto producer = Stream::cpu();
  auto consumer = Stream::cpu();
  Gate gate;
  int value = 0;  // not atomic: the order is what protects it, and the thread sanitizer checks that
  auto const work = enqueue_work(producer, [&value, hold = gate.task()] {
    hold();
    value = 42;
  });
  work.wait_on(consumer);
  int seen = 0;
  auto const read = enqueue_work(consumer, [&] { seen = value; });
  EXPECT_FALSE(read.wait_for(20ms));
  gate.open();
  read.wait();
  EXPECT_EQ(seen, 42);
}

TEST(Work, WaitOnAFailedWorkDoesNotEndTheStream) {
  auto producer = Stream::cpu();
  auto consumer = Stream::cpu();
  Gate gate;
  auto const work = enqueue_work(producer, [hold = gate.task()] {
    hold();
    throw Error(ErrorCode::timeout, "late");
  });
  work.wait_on(consumer);
  auto const next = enqueue_work(consumer, [] {});
  gate.open();
  next.wait();
  EXPECT_NE(work.error(), nullptr);
}

TEST(Work, NoWakeUpIsMissed) {
  // Completion and the first wait race at every distance; a missed wake-up hangs, and the watchdog names this test.
  std::mt19937 random(20240607);
  auto stream = Stream::cpu();
  for (int round = 0; round < 5000; ++round) {
    auto state = std::make_shared<Work::State>();
    Work const work(state);
    auto const spins_there = random() % 400;
    auto const spins_here = random() % 400;
    stream.enqueue([state, spins_there] {
      for (unsigned i = 0; i < spins_there; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      state->complete();
    });
    for (unsigned i = 0; i < spins_here; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    if (round % 3 == 0) {
      ASSERT_TRUE(work.wait_for(60s));
    } else {
      work.wait();
    }
  }
}

/// Of a device that is through with everything.
class Reached final : public DeviceCompletion {
 public:
  [[nodiscard]] bool reached() const noexcept override { return true; }
  bool wait_on(Stream const&) const override { return false; }
  [[nodiscard]] bool is_captured() const noexcept override { return false; }
};

TEST(Work, NoDeviceIsMissed) {
  // A wait and a device that comes meanwhile race at every distance; nobody else would complete the work.
  constexpr int kRounds = 20000;
  auto const device = std::make_shared<Reached const>();
  std::vector<std::shared_ptr<Work::State>> states(kRounds);
  for (auto& state : states) state = std::make_shared<Work::State>();
  std::atomic<int> begun{-1};
  auto const pass = [](unsigned spins) {
    for (unsigned i = 0; i < spins; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
  };
  std::thread attacher([&] {
    std::mt19937 random(20241130);
    for (int round = 0; round < kRounds; ++round) {
      while (begun.load() < round) std::this_thread::yield();
      pass(random() % 4000);
      states[static_cast<std::size_t>(round)]->attach(device);
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    Work const work(states[static_cast<std::size_t>(round)]);
    begun.store(round);
    if (round % 3 == 0) {
      EXPECT_TRUE(work.wait_for(60s));
    } else {
      work.wait();
    }
  }
  attacher.join();
}

}  // namespace
}  // namespace weft
