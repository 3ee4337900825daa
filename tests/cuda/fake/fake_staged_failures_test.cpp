// What becomes of calls through host memory when ranks differ, are late or leave, or the GPU fails.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/device_access.hpp"
#include "collectives/staged/staged_factory.hpp"
#include "cuda/fake/on_fake_gpu.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"
#include "weft/group.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
class FakeStagedFailures : public OnFakeGpu {
 protected:
  static void connect(Communicator& world) {
    auto const factory = staged::factory({.cuda = &FakeGpu::functions(), .chunk_bytes = 4096});
    DeviceAccess::connect(world, *factory);
  }
  static BufferView on_gpu(std::vector<float>& values) { return {values.data(), values.size(), DataType::f32, kGpu}; }
  static Work reduce(Communicator& world, std::vector<float>& values, Stream const& stream,
                     std::chrono::milliseconds timeout = 10s) {
    return world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream, .timeout = timeout});
  }
  static void expect_error(std::function<void()> const& body, ErrorCode code, std::vector<std::string> const& words) {
    try {
      body();
      ADD_FAILURE() << "did not fail";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      for (auto const& word : words) EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
  /// What waiting for the Work throws, and that every later call fails too.
  static void expect_failed(Communicator& world, Work const& work, Stream const& stream, ErrorCode code,
                            std::vector<std::string> const& words) {
    expect_error([&] { work.wait(); }, code, words);
    std::vector<float> values(4);
    EXPECT_THROW(reduce(world, values, stream).wait(), Error);
  }
};

TEST_F(FakeStagedFailures, CallsThatDifferNameBothAndTheRanksCanConnectAgain) {
  // In one step, and in steps that are alike at first.
  for (std::size_t const count : {4, 5000}) {
    run_thread_ranks(3, [&](Communicator& world) {
      connect(world);
      Stream const stream = gpu.make_stream();
      std::vector<float> values(world.rank() == 1 ? count + 1 : count, 1.0F);
      Work const work = reduce(world, values, stream);
      expect_failed(world, work, stream, ErrorCode::mismatch,
                    {"call 1", "rank 1", std::to_string(count + 1) + " × f32", std::to_string(count) + " × f32"});
      EXPECT_EQ(values, std::vector<float>(values.size(), values[0])) << "partly reduced";
      // Host memory is not concerned.
      std::vector<float> host(2, 1.0F);
      world.all_reduce(std::span<float const>(host), std::span(host), ReduceOp::sum);
      EXPECT_EQ(host[0], 3.0F);
      auto const again = DeviceAccess::backend(world)->renew({});
      DeviceAccess::connect(world, *again);
      std::vector<float> more(9, 1.0F);
      reduce(world, more, stream).wait();
      EXPECT_EQ(more[0], 3.0F);
    });
  }
}

TEST_F(FakeStagedFailures, RanksConnectAgainAfterAFailureThatOneRankKnowsOf) {
  Config config;
  config.timeout = kImpatience;
  run_thread_ranks(3,
                   [&](Communicator& world) {
                     connect(world);
                     Stream const stream = gpu.make_stream();
                     world.barrier();
                     if (world.rank() == 1) DeviceAccess::backend(world)->fail(ErrorCode::aborted, "enough");
                     world.connect(kGpu);
                     std::vector<float> values(4, 1.0F);
                     reduce(world, values, stream).wait();
                     EXPECT_EQ(values[0], 3.0F);
                   },
                   {.config = config});
}

TEST_F(FakeStagedFailures, ATimeoutNamesTheRankThatDidNotMakeTheCall) {
  run_thread_ranks(2, [&](Communicator& world) {
    connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    if (world.rank() == 0) {
      expect_failed(world, reduce(world, values, stream, 50ms), stream, ErrorCode::timeout,
                    {"all_reduce(4 × f32, sum), call 1", "50 ms", "rank 1", "WEFT_TIMEOUT"});
    }
    world.barrier();
    EXPECT_THROW(reduce(world, values, stream).wait(), Error);
  });
}

// Behind it in the stream are kernels that still use the buffers: nothing may be copied into them before.
TEST_F(FakeStagedFailures, AStuckGpuIsNamedAndItsBuffersAreLeftAlone) {
  run_thread_ranks(2, [&](Communicator& world) {
    connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    if (world.rank() == 1) gpu.hold(stream);
    Work const work = reduce(world, values, stream, world.rank() == 1 ? kImpatience : 60s);
    expect_failed(world, work, stream, ErrorCode::timeout, {"rank 1: all_reduce", "WEFT_TIMEOUT"});
    if (world.rank() == 1) {
      EXPECT_EQ(values, std::vector<float>(4, 1.0F));
      expect_error([&] { work.wait(); }, ErrorCode::timeout, {"still in use"});
      gpu.release(stream);
    }
    Stream(stream).synchronize();
  });
}

TEST_F(FakeStagedFailures, ARankThatLeavesIsNamedAndWhatWasDoneStays) {
  std::atomic<int> called{0};
  run_thread_ranks(3, [&](Communicator& world) {
    connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    Work const first = reduce(world, values, stream);
    if (world.rank() == 2) {
      first.wait();
      while (called < 2) std::this_thread::yield();
      return;
    }
    std::vector<float> more(4, 1.0F);
    Work const second = reduce(world, more, stream);
    ++called;
    expect_failed(world, second, stream, ErrorCode::peer_lost, {"rank 2", "left", "call 2"});
    first.wait();  // looked at only now
    EXPECT_EQ(values[0], 3.0F);
  });
}

TEST_F(FakeStagedFailures, AbortReachesEveryRankAlsoOneThatHasNoCall) {
  run_thread_ranks(3, [&](Communicator& world) {
    connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    Work work;
    if (world.rank() == 0) work = reduce(world, values, stream);
    world.barrier();
    if (world.rank() == 1) {
      DeviceAccess::backend(world)->fail(ErrorCode::aborted, "enough");
      EXPECT_THROW(static_cast<void>(reduce(world, values, stream)), Error);
    } else if (world.rank() == 0) {
      expect_failed(world, work, stream, ErrorCode::aborted, {"rank 1", "enough"});
    }
    world.barrier();
    for (int looks = 0; looks < 30'000 && !DeviceAccess::backend(world)->failure(); ++looks)
      std::this_thread::sleep_for(1ms);
    expect_error([&] { static_cast<void>(reduce(world, values, stream)); }, ErrorCode::aborted, {"enough"});
    world.barrier();
  });
}

TEST_F(FakeStagedFailures, WhatCudaRefusesFailsAllRanksAndIsNamed) {
  for (auto const* const call : {"cudaMemcpyAsync", "cuStreamWaitValue32", "cuStreamWriteValue32", "cudaEventRecord"}) {
    run_thread_ranks(2, [&](Communicator& world) {
      connect(world);
      Stream const stream = gpu.make_stream();
      std::vector<float> values(5000, 1.0F);
      reduce(world, values, stream).wait();
      world.barrier();
      if (world.rank() == 0) {
        gpu.fail_next(call, cudaErrorInvalidValue);
        expect_error([&] { static_cast<void>(reduce(world, values, stream)); }, ErrorCode::system,
                     {"rank 0: all_reduce", call});
      }
      world.barrier();
      if (world.rank() == 1) {
        std::vector<float> more(5000, 1.0F);
        expect_error([&] { reduce(world, more, stream).wait(); }, ErrorCode::system, {"rank 0", call});
      }
      world.barrier();
    });
  }
}

// After that nothing sets the words that the courier waits for, before the exchange or behind it.
TEST_F(FakeStagedFailures, AGpuThatFailsLaterFailsAllRanksAndIsNamed) {
  for (bool const before : {true, false}) {
    run_thread_ranks(2, [&](Communicator& world) {
      connect(world);
      Stream const stream = gpu.make_stream();
      std::vector<float> values(4, 1.0F);
      reduce(world, values, stream).wait();
      world.barrier();
      bool const fails = world.rank() == 0;
      if (fails && before) gpu.hold(stream);
      if (fails && !before) gpu.break_streams_here_at_copy_in();
      if (!fails && !before)
        world.barrier();  // the failing GPU has been given all of the call when it comes to its copy
      Work const work = reduce(world, values, stream, 60s);
      if (fails || before) world.barrier();
      if (fails && before) gpu.break_streams_here();
      if (fails) expect_error([&] { work.wait(); }, ErrorCode::system, {"cudaEventQuery"});
      for (int looks = 0; looks < 30'000 && !DeviceAccess::backend(world)->failure(); ++looks)
        std::this_thread::sleep_for(1ms);
      expect_error([&] { static_cast<void>(reduce(world, values, stream)); }, ErrorCode::system,
                   {"rank 0: all_reduce", "call 2", "cudaEventQuery"});
      world.barrier();
    });
  }
}

TEST_F(FakeStagedFailures, AGroupThatFailsIsThroughWithItsBuffers) {
  run_thread_ranks(2, [&](Communicator& world) {
    connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(world.rank() == 1 ? 5 : 4, 1.0F);
    std::vector<float> more(4, 1.0F);
    std::vector<float> all(8);
    Group group(world, {.stream = stream});
    static_cast<void>(world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum));
    static_cast<void>(world.all_gather(on_gpu(more), on_gpu(all)));
    static_cast<void>(world.all_reduce(on_gpu(all), on_gpu(all), ReduceOp::max));
    Work const work = group.end();
    try {
      work.wait();
      ADD_FAILURE();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
      EXPECT_EQ(std::string(error.what()).find("still in use"), std::string::npos) << error.what();
    }
  });
}

TEST_F(FakeStagedFailures, ADriverWithoutStreamValuesIsRefusedOnAllRanks) {
  gpu.fail_next("cuStreamWriteValue32", cudaErrorNotSupported);
  run_thread_ranks(2, [&](Communicator& world) {
    expect_error([&] { connect(world); }, ErrorCode::unsupported, {"cuStreamWaitValue32", "CUDA 12"});
  });
}

TEST_F(FakeStagedFailures, PartsThatDoNotFitFailAllRanks) {
  run_thread_ranks(2, [&](Communicator& world) {
    connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> mine(5000, 1.0F);
    std::vector<float> all(9000);
    std::vector<std::size_t> const counts{5000, 4000};  // rank 1 has more
    Work const work = world.gather(on_gpu(mine), on_gpu(all), Parts{counts}, 0, {.stream = stream, .timeout = 5s});
    EXPECT_THROW(work.wait(), Error);
    std::vector<float> values(4);
    EXPECT_THROW(reduce(world, values, stream).wait(), Error);
  });
}

}  // namespace
}  // namespace weft::test
