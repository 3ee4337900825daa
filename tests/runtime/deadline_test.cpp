#include "runtime/deadline.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace weft {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(Deadline, NeverEarly) {
  for (auto const delay : {0us, 50us, 300us, 2000us}) {
    auto const deadline = Clock::now() + delay;
    sleep_until(deadline);
    EXPECT_GE(Clock::now(), deadline);
  }
}

TEST(Deadline, APastDeadlineDoesNotSleep) {
  auto const before = Clock::now();
  sleep_until(before - 1h);
  sleep_until(Clock::time_point{});
  sleep_until(Clock::time_point::min());
  EXPECT_LT(Clock::now() - before, 10s);
}

TEST(Deadline, SignalsDoNotCutItShort) {
  struct sigaction ignore_with_handler {};
  ignore_with_handler.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR1, &ignore_with_handler, &before), 0);
  std::atomic<bool> early{true};
  std::thread sleeper([&early] {
    auto const deadline = Clock::now() + 50ms;
    sleep_until(deadline);
    early = Clock::now() < deadline;
  });
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(5ms);
    pthread_kill(sleeper.native_handle(), SIGUSR1);
  }
  sleeper.join();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_FALSE(early);
}

TEST(Deadline, PreciseSleepAffectsOnlyTheCallingThread) {
  auto const mine = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  std::thread([] {
    use_precise_sleep();
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1);
  }).join();
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), mine);
}

}  // namespace
}  // namespace weft
