// Streams, events and memory, on the fake GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/staged/pinned.hpp"
#include "cuda/fake/on_fake_gpu.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_stream.hpp"
#include "runtime/cuda/cuda_work.hpp"
#include "runtime/cuda/event_pool.hpp"
#include "runtime/cuda/memory_pool.hpp"
#include "weft/cuda_graph.hpp"
#include "weft/error.hpp"
#include "weft/event.hpp"
#include "weft/memory.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

using FakeStreams = OnFakeGpu;

TEST_F(FakeStreams, EventsAreUsedAgainAndMayOutliveTheirPool) {
  constexpr std::size_t kMany = 700;  // more than a pool keeps
  std::vector<cuda::EventPool::Lease> held;
  {
    cuda::EventPool pool(0, cudaEventDisableTiming, FakeGpu::functions());
    for (int i = 0; i < 2000; ++i) static_cast<void>(pool.take());
    EXPECT_LE(gpu.live_events(), 4U);
    std::set<cudaEvent_t> different;
    for (std::size_t i = 0; i < kMany; ++i) different.insert(held.emplace_back(pool.take()).event());
    EXPECT_EQ(different.size(), kMany);
    held.resize(kMany / 2);
  }
  EXPECT_GE(gpu.live_events(), kMany / 2);
  held.clear();
  EXPECT_EQ(gpu.live_events(), 0U);
}

TEST_F(FakeStreams, WhatWasSeenToBeThroughHasSucceededThoughTheGpuFailsLater) {
  auto const failure = std::make_shared<cuda::SharedFailure>();
  cuda::WorkPool pool(0, FakeGpu::functions());
  Stream const stream = gpu.make_stream();
  auto const seen = pool.make(*cuda::as_cuda(stream), failure, false);
  auto const unseen = pool.make(*cuda::as_cuda(stream), failure, false);
  EXPECT_FALSE(seen->completion.is_broken());
  while (!seen->completion.reached()) std::this_thread::yield();
  gpu.break_streams_here();
  EXPECT_TRUE(seen->completion.reached());
  EXPECT_FALSE(seen->completion.is_broken());
  EXPECT_EQ(seen->completion.error(), nullptr);
  EXPECT_TRUE(unseen->completion.reached());
  EXPECT_TRUE(unseen->completion.is_broken());
  EXPECT_NE(unseen->completion.error(), nullptr);
}

TEST_F(FakeStreams, NoTwoThreadsHaveAnEventOfAPool) {
  constexpr int kThreads = 4;
  std::mutex mutex;
  std::set<cudaEvent_t> taken;
  std::vector<cuda::EventPool::Lease> left(kThreads);
  {
    cuda::EventPool pool(0, cudaEventDisableTiming, FakeGpu::functions());
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 500; ++i) {
          auto mine = pool.take();
          {
            std::scoped_lock const lock(mutex);
            EXPECT_TRUE(taken.insert(mine.event()).second);
          }
          std::this_thread::yield();
          {
            std::scoped_lock const lock(mutex);
            taken.erase(mine.event());
          }
          if (i == 499) left[static_cast<std::size_t>(t)] = std::move(mine);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  std::vector<std::thread> last;
  for (auto& lease : left) last.emplace_back([mine = std::move(lease)] {});
  for (auto& thread : last) thread.join();
  EXPECT_EQ(gpu.live_events(), 0U);
}

TEST_F(FakeStreams, OneStreamWaitsForAnotherWithoutTheHost) {
  Stream first = gpu.make_stream();
  Stream second = gpu.make_stream(true);
  std::atomic<int> done = 0;
  gpu.hold(first);
  first.enqueue([&] { done = 1; });
  Event event;
  event.record(first);
  event.wait_on(second);
  std::atomic<int> seen = -1;
  second.enqueue([&] { seen = done.load(); });
  EXPECT_EQ(gpu.host_waits_here(), 0U);
  gpu.release(first);
  second.synchronize();
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(gpu.count("cudaStreamCreateWithPriority(high)"), 1U);
}

TEST_F(FakeStreams, EventsAreUsedAgain) {
  Stream stream = gpu.make_stream();
  for (int i = 0; i < 100; ++i) {
    Event event;
    event.record(stream);
    event.synchronize();
  }
  EXPECT_LE(gpu.count("cudaEventCreateWithFlags"), 2U);
  EXPECT_EQ(gpu.count("cudaEventRecord"), 100U);
}

TEST_F(FakeStreams, CpuAndCudaStreamsWaitForEachOther) {
  Stream gpu_stream = gpu.make_stream();
  Stream cpu = Stream::cpu();
  std::atomic<int> order = 0;
  gpu.hold(gpu_stream);
  gpu_stream.enqueue([&] { order = 1; });
  Event event;
  event.record(gpu_stream);
  event.wait_on(cpu);
  std::atomic<int> seen = -1;
  cpu.enqueue([&] { seen = order.load(); });
  Event back;
  back.record(cpu);
  back.wait_on(gpu_stream);
  gpu.release(gpu_stream);
  gpu_stream.synchronize();
  EXPECT_EQ(seen, 1);
}

TEST_F(FakeStreams, StreamOrderedMemoryIsFreeOnlyAfterItsLastUseOnAnyStream) {
  Stream mine = gpu.make_stream();
  Stream other = gpu.make_stream();
  auto target = gpu.allocate(64, DataType::u8);
  {
    Buffer const buffer = cuda::allocate(64, DataType::u8, mine);
    Event there;
    there.record(mine);
    there.wait_on(other);
    gpu.hold(other);
    cuda::copy(target.view(), buffer.view(), other);
    cuda::use_on(buffer, other);
    cuda::use_on(buffer, other);  // of several the last counts
  }
  mine.enqueue([] {});
  std::this_thread::sleep_for(5ms);
  EXPECT_GT(gpu.live_bytes(), 64U + 255U);  // the copy has not run
  gpu.release(other);
  mine.synchronize();
  other.synchronize();
  EXPECT_EQ(static_cast<std::uint8_t*>(target.data())[63], 0);  // freed memory is overwritten
  EXPECT_EQ(gpu.live_bytes(), 256U);
  EXPECT_THROW(cuda::use_on(target, other), Error);
}

TEST_F(FakeStreams, APoolKeepsFreedMemoryAndTheAccountCountsWhatIsUsed) {
  Stream stream = gpu.make_stream();
  MemoryAccount const account(4096);
  MemoryAccount::Binding const bound(account);
  cuda::MemoryPool const pool(
      std::make_shared<cuda::MemoryPool::Impl const>(0, cuda::MemoryPool::kKeepAll, gpu.functions()));
  EXPECT_EQ(gpu.count("cudaMemPoolSetAttribute"), 1U);
  {
    MemoryScope const scope(MemoryKind::gradients);
    Buffer const buffer = pool.allocate(1000, DataType::u8, stream);
    EXPECT_EQ(account.usage(MemoryKind::gradients).live, 1000U);
    Buffer const ordered = cuda::allocate(1000, DataType::u8, stream);
    Buffer const blocking = gpu.allocate(1000, DataType::u8);
    EXPECT_EQ(account.total().live, 3000U);
    try {
      static_cast<void>(cuda::allocate(2000, DataType::u8, stream));
      FAIL() << "above the budget";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    }
  }
  EXPECT_EQ(account.total().live, 0U);
  EXPECT_EQ(gpu.count("cudaMallocFromPoolAsync"), 1U);
  pool.trim(7);
  stream.synchronize();
}

TEST_F(FakeStreams, WhatCudaRefusesIsNamed) {
  gpu.fail_next("cudaMallocAsync", cudaErrorMemoryAllocation);
  Stream stream = gpu.make_stream();
  try {
    static_cast<void>(cuda::allocate(8, DataType::f32, stream));
    FAIL();
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("cudaMallocAsync"), std::string::npos);
  }
  gpu.fail_next("cudaEventRecord", cudaErrorIllegalAddress);
  Event event;
  EXPECT_THROW(event.record(stream), Error);
}

// "Not ready" is an error to CUDA, and so is the end of a capture that something has broken.
TEST_F(FakeStreams, NothingIsLeftForTheNextLaunchToReport) {
  Stream stream = gpu.make_stream();
  gpu.hold(stream);
  Event event;
  event.record(stream);
  EXPECT_FALSE(event.query());
  EXPECT_EQ(FakeGpu::functions().get_last_error(), cudaSuccess);
  gpu.release(stream);
  stream.synchronize();
  gpu.fail_next("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated);
  EXPECT_THROW(static_cast<void>(cuda::Graph::record(stream, [] { throw std::runtime_error("stop"); })),
               std::runtime_error);
  EXPECT_EQ(FakeGpu::functions().get_last_error(), cudaSuccess);
}

// Every rank of a host would have one on GPU 0, which is current where nobody has chosen.
TEST(FakeDevices, ADeviceThatIsNotUsedGetsNoContext) {
  FakeGpu gpu(2);
  auto const& cuda = FakeGpu::functions();
  auto const use_second = [&] {
    cuda::DeviceGuard const guard(1, cuda);
    EXPECT_EQ(FakeGpu::current_device, 1);
  };
  FakeGpu::current_device = 0;
  use_second();
  FakeGpu::current_device = 0;
  static_cast<void>(staged::allocate_pinned(100, 1, cuda));
  EXPECT_EQ(gpu.contexts(), std::set<int>{1});
  static_cast<void>(cuda.set_device(0));
  use_second();
  EXPECT_EQ(FakeGpu::current_device, 0);
}

TEST(FakeDevices, ADefaultStreamIsThatOfItsDeviceWhicheverIsCurrent) {
  FakeGpu gpu(2);
  Stream second(std::make_shared<cuda::CudaStream>(nullptr, 1, FakeGpu::functions()));
  Stream first = gpu.make_stream();
  auto const on_second = [&](auto const& body) {
    cuda::DeviceGuard const guard(1, FakeGpu::functions());
    body();
  };
  Buffer memory = cuda::allocate(64, DataType::u8, second);
  second.synchronize();
  on_second([&] { gpu.hold(second); });
  second.enqueue([] {});
  Event event;
  event.record(second);
  EXPECT_FALSE(event.query());
  memory = {};
  std::this_thread::sleep_for(5ms);
  EXPECT_GT(gpu.live_bytes(), 0U);
  on_second([&] { gpu.release(second); });
  second.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_EQ(gpu.live_bytes(), 0U);

  gpu.hold(first);
  std::atomic<int> order = 0;
  std::atomic<int> seen = -1;
  first.enqueue([&] { order = 1; });
  Event before;
  before.record(first);
  before.wait_on(second);
  second.enqueue([&] { seen = order.load(); });
  std::this_thread::sleep_for(5ms);
  gpu.release(first);
  second.synchronize();
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(gpu.violations(), std::vector<std::string>{});
}

// It has an address of its own, and is taken and freed each time the graph runs.
TEST_F(FakeStreams, MemoryOfAStreamsOrderCanBeCaptured) {
  Stream stream = gpu.make_stream();
  Buffer const out = cuda::allocate(4, DataType::f32, 0);
  {
    auto const graph = cuda::Graph::record(stream, [&] {
      Buffer const scratch = cuda::allocate(4, DataType::f32, stream);
      static_cast<void>(gpu.launch_kernel(cuda::handle_of(stream), [=, to = scratch.view()] {
        for (int i = 0; i < 4; ++i) static_cast<float*>(to.data)[i] += static_cast<float>(i);
      }));
      cuda::copy(out.view(), scratch.view(), stream);
    });
    for (int launch = 0; launch < 2; ++launch) graph.launch(stream);
    stream.synchronize();
  }
  EXPECT_EQ(out.as<float>()[3], 3.0F);  // what is new is zero
  EXPECT_EQ(gpu.violations(), std::vector<std::string>{});
}

// What a GPU refuses, the fake does.
TEST_F(FakeStreams, ACaptureThatLeavesWorkBehindIsRefused) {
  Stream stream = gpu.make_stream();
  Stream side = gpu.make_stream();
  auto const record = [&](bool joins) {
    static_cast<void>(cuda::Graph::record(stream, [&] {
      follow(side, stream);
      static_cast<void>(gpu.launch_kernel(cuda::handle_of(side), [] {}));
      if (joins) follow(stream, side);
      static_cast<void>(gpu.launch_kernel(cuda::handle_of(side), [] {}));
      if (joins) follow(stream, side);
    }));
  };
  EXPECT_NO_THROW(record(true));
  EXPECT_THROW(record(false), Error);
  EXPECT_EQ(FakeGpu::functions().get_last_error(), cudaSuccess);
}

TEST_F(FakeStreams, MarksCanBeCaptured) {
  Stream stream = gpu.make_stream();
  Stream side = gpu.make_stream();
  std::atomic<int> runs = 0;
  gpu.begin_capture(stream);
  Event fork;
  fork.record(stream);
  fork.wait_on(side);
  static_cast<void>(gpu.launch_kernel(cuda::handle_of(side), [&] { ++runs; }));
  Event join;
  join.record(side);
  join.wait_on(stream);
  auto const graph = gpu.end_capture(stream);
  stream.synchronize();
  EXPECT_EQ(runs, 0);
  for (int launch = 1; launch <= 2; ++launch) {
    gpu.launch(graph, stream);
    stream.synchronize();
    EXPECT_EQ(runs, launch);
  }
}

// A task is gone when it has run, and a graph would run it again.
TEST_F(FakeStreams, AHostTaskCannotBeCaptured) {
  Stream stream = gpu.make_stream();
  try {
    static_cast<void>(cuda::Graph::record(stream, [&] { stream.enqueue([] {}); }));
    ADD_FAILURE() << "recorded";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
  }
  stream.enqueue([] {});
  stream.synchronize();
}

}  // namespace
}  // namespace weft::test
