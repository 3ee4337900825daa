#include "weft/stream.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <atomic>
#include <csignal>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "error_matchers.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;

/// Longer than a test needs the worker to linger, though it waits that long at its end.
constexpr auto kLong = 300ms;

TEST(CpuStream, RunsTasksInTheOrderOfTheirThread) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 2000;
  auto stream = Stream::cpu();
  std::vector<std::pair<int, int>> ran;  // written by the worker only
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&ran, stream, thread]() mutable {
      for (int task = 0; task < kTasks; ++task)
        stream.enqueue([&ran, thread, task] { ran.emplace_back(thread, task); });
    });
  }
  for (auto& thread : threads) thread.join();
  stream.synchronize();

  ASSERT_EQ(ran.size(), std::size_t{kThreads * kTasks});
  std::vector<int> next(kThreads, 0);
  for (auto const& [thread, task] : ran) EXPECT_EQ(task, next[static_cast<std::size_t>(thread)]++);
}

TEST(CpuStream, ManyStreamsRunSideBySide) {
  // Each stream's task waits for the next stream's, so all of them must be running at once.
  constexpr std::size_t kStreams = 16;
  std::vector<Stream> streams;
  std::vector<std::promise<void>> arrived(kStreams);
  std::atomic<int> finished{0};
  for (std::size_t i = 0; i < kStreams; ++i) streams.push_back(Stream::cpu());
  for (std::size_t i = 0; i < kStreams; ++i) {
    streams[i].enqueue([&, i] {
      arrived[i].set_value();
      arrived[(i + 1) % kStreams].get_future().wait();
      ++finished;
    });
  }
  for (auto& stream : streams) stream.synchronize();
  EXPECT_EQ(finished, static_cast<int>(kStreams));
}

TEST(CpuStream, SynchronizeWaitsOnlyForWhatWasEnqueuedBefore) {
  auto stream = Stream::cpu();
  std::promise<void> release;
  std::promise<void> first_ran;
  stream.enqueue([&] { first_ran.set_value(); });
  stream.synchronize();
  EXPECT_EQ(first_ran.get_future().wait_for(0s), std::future_status::ready);
  stream.enqueue([gate = release.get_future().share()] { gate.wait(); });
  auto waiter = std::async(std::launch::async, [stream]() mutable { stream.synchronize(); });
  EXPECT_EQ(waiter.wait_for(20ms), std::future_status::timeout);
  release.set_value();
  waiter.get();
}

TEST(CpuStream, TaskCapturesAreReleasedBeforeSynchronizeReturns) {
  auto stream = Stream::cpu();
  for (int round = 0; round < 200; ++round) {
    auto owned = std::make_shared<int>(round);
    std::weak_ptr<int> const watch = owned;
    stream.enqueue([owned = std::move(owned)] { (void)*owned; });
    stream.synchronize();
    ASSERT_TRUE(watch.expired());
  }
}

TEST(CpuStream, DrainsWhenItsLastCopyGoes) {
  std::atomic<int> ran{0};
  {
    auto stream = Stream::cpu();
    for (int i = 0; i < 500; ++i) stream.enqueue([&ran] { ++ran; });
    auto const copy = stream;
    EXPECT_TRUE(copy == stream);
  }
  EXPECT_EQ(ran, 500);
}

TEST(CpuStream, LastCopyMayBeDroppedByItsOwnTask) {
  // The task holds the last reference; what was enqueued behind it still runs, and nothing deadlocks.
  auto behind = std::make_shared<std::promise<void>>();
  auto done = behind->get_future();
  std::promise<void> dropped;
  {
    auto stream = Stream::cpu();
    auto gate = dropped.get_future().share();
    auto held = std::make_shared<Stream>(stream);
    stream.enqueue([gate, held] { gate.wait(); });
    stream.enqueue([behind = std::move(behind)] { behind->set_value(); });
  }
  dropped.set_value();
  EXPECT_EQ(done.wait_for(30s), std::future_status::ready);
}

TEST(CpuStream, SynchronizeFromItsOwnTaskIsAnErrorAndNoDeadlock) {
  auto stream = Stream::cpu();
  stream.enqueue([&stream] {
    test::expect_error(ErrorCode::invalid_argument, {"synchronize", "task of this stream"},
                       [&stream] { stream.synchronize(); });
  });
  stream.synchronize();
}

TEST(CpuStream, HelpersRunTasksInOrderOneAtATimeWhoeverRunsThem) {
  constexpr int kThreads = 3;
  constexpr int kTasks = 3000;
  auto stream = Stream::cpu({.linger = 20us});
  std::atomic<int> inside{0};
  std::atomic<int> by_helpers{0};
  std::vector<std::pair<int, int>> ran;  // one task at a time writes
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, stream, thread]() mutable {
      std::minstd_rand random(static_cast<unsigned>(thread) + 1);
      std::atomic<int> done{0};
      for (int task = 0; task < kTasks; ++task) {
        stream.enqueue([&, thread, task, maker = std::this_thread::get_id()] {
          EXPECT_EQ(inside.fetch_add(1), 0);
          ran.emplace_back(thread, task);
          by_helpers += std::this_thread::get_id() == maker ? 1 : 0;
          inside.fetch_sub(1);
          ++done;
        });
        if (random() % 4 == 0) stream.help_until([&] { return done == task + 1; });
      }
      stream.synchronize();
    });
  }
  for (auto& thread : threads) thread.join();

  ASSERT_EQ(ran.size(), std::size_t{kThreads * kTasks});
  EXPECT_GT(by_helpers, 0);
  std::vector<int> next(kThreads, 0);
  for (auto const& [thread, task] : ran) EXPECT_EQ(task, next[static_cast<std::size_t>(thread)]++);
}

TEST(CpuStream, HelperStopsWhenItHasEnoughAndTheWorkerRunsTheRest) {
  auto stream = Stream::cpu({.linger = kLong});
  stream.enqueue([] {});
  stream.synchronize();  // the worker lingers from now on
  std::vector<std::thread::id> ran;
  for (int task = 0; task < 3; ++task) stream.enqueue([&] { ran.push_back(std::this_thread::get_id()); });
  stream.help_until([&] { return ran.size() == 2; });
  EXPECT_EQ(ran, std::vector(2, std::this_thread::get_id()));
  stream.synchronize();
  ASSERT_EQ(ran.size(), 3U);
  EXPECT_NE(ran.back(), std::this_thread::get_id());
}

TEST(CpuStream, NobodyHelpsAWorkerThatDoesNotLinger) {
  auto stream = Stream::cpu();
  std::thread::id ran;
  stream.enqueue([&] { ran = std::this_thread::get_id(); });
  stream.help_until([] { return false; });
  stream.synchronize();
  EXPECT_NE(ran, std::this_thread::get_id());
}

TEST(CpuStream, SynchronizeFromATaskThatAHelperRunsIsAnError) {
  auto stream = Stream::cpu({.linger = kLong});
  stream.enqueue([] {});
  stream.synchronize();
  stream.enqueue([&] {
    test::expect_error(ErrorCode::invalid_argument, {"synchronize", "task of this stream"},
                       [&] { stream.synchronize(); });
  });
  stream.help_until([] { return false; });
}

TEST(CpuStream, WorkerIsNamedBoundAndPrecise) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int cpu = CPU_SETSIZE - 1;
  while (cpu > 0 && !CPU_ISSET(cpu, &allowed)) --cpu;

  auto stream = Stream::cpu({.name = "a-name-longer-than-fifteen", .cpu = cpu});
  stream.enqueue([cpu] {
    char name[16] = {};
    EXPECT_EQ(pthread_getname_np(pthread_self(), name, sizeof name), 0);
    EXPECT_STREQ(name, "a-name-longer-t");
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1);
  });
  stream.synchronize();
  // The binding is in force once cpu() has returned.
  stream.enqueue([cpu] {
    cpu_set_t mine;
    ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof mine, &mine), 0);
    EXPECT_EQ(CPU_COUNT(&mine), 1);
    EXPECT_TRUE(CPU_ISSET(cpu, &mine));
    EXPECT_EQ(sched_getcpu(), cpu);
  });
  stream.synchronize();
}

TEST(CpuStream, UnboundWorkerInheritsItsCreatorsBinding) {
  cpu_set_t creators;
  ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof creators, &creators), 0);
  auto stream = Stream::cpu();
  stream.enqueue([creators] {
    cpu_set_t mine;
    ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof mine, &mine), 0);
    EXPECT_TRUE(CPU_EQUAL(&mine, &creators));
  });
  stream.synchronize();
}

TEST(CpuStream, WorkerLeavesSignalsToTheApplication) {
  auto stream = Stream::cpu();
  stream.enqueue([] {
    sigset_t mask;
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &mask), 0);
    EXPECT_EQ(sigismember(&mask, SIGINT), 1);
    EXPECT_EQ(sigismember(&mask, SIGALRM), 1);
    EXPECT_EQ(sigismember(&mask, SIGSEGV), 0);
  });
  stream.synchronize();
  sigset_t mask;
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &mask), 0);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0);
}

TEST(CpuStream, ImpossibleCpuIsAnErrorThatNamesIt) {
  for (int const cpu : {-1, CPU_SETSIZE - 1, CPU_SETSIZE}) {
    auto const named = std::to_string(cpu);
    test::expect_error(ErrorCode::system, {"comm-lane", named.c_str()},
                       [cpu] { (void)Stream::cpu({.name = "comm-lane", .cpu = cpu}); });
  }
}

TEST(CpuStream, IsOnTheCpu) {
  EXPECT_EQ(Stream::cpu().device(), Device{});
}

}  // namespace
}  // namespace weft
