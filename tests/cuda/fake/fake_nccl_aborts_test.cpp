// What becomes of calls whose streams are stuck, and of aborts that hang.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "cuda/fake/fake_nccl_failures.hpp"

namespace weft::test {
namespace {

TEST_F(FakeNcclFailures, AStuckGpuIsNamed) {
  run_ranks(2, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    if (world.rank() == 1) gpu.hold(stream);
    Work const work =
        world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream, .timeout = kImpatience});
    expect_failed(world, work, stream, ErrorCode::timeout, {"all_reduce", "WEFT_TIMEOUT"});
    if (world.rank() == 1) gpu.release(stream);
    Stream(stream).synchronize();
  });
}

TEST_F(FakeNcclFailures, AbortReachesEveryRank) {
  run_ranks(2, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    if (world.rank() == 1) {
      std::this_thread::sleep_for(10ms);
      world.abort("enough");
      EXPECT_THROW(static_cast<void>(reduce(world, values, stream)), Error);
      return;
    }
    Work const work = reduce_or_fail(world, values, stream);
    expect_failed(world, work, stream, ErrorCode::aborted, {"rank 1", "enough"});
  });
}

// Its kernel ends when another rank stops its own, before this rank has heard of that.
TEST_F(FakeNcclFailures, WhatEndsSinceAnotherRankHasStoppedHasNotSucceeded) {
  nccl.ending_collectives = 0;
  run_thread_ranks(2, [&](Communicator& world) {
    for (int round = 0; round < 20; ++round) {
      FakeNccl::connect(world);
      Stream const stream = gpu.make_stream();
      std::vector<float> values(4, 1.0F);
      Work const work = reduce(world, values, stream);
      world.barrier();
      std::this_thread::sleep_for(3ms);  // so that both kernels run
      if (world.rank() == 0) DeviceAccess::backend(world)->fail(ErrorCode::aborted, "enough");
      expect_failed(world, work, stream, ErrorCode::aborted, {"rank 0", "enough"});
      Stream(stream).synchronize();
      world.barrier();
    }
  });
}

// A stream that is stuck before NCCL's kernel: revoking does not end it, so NCCL is aborted before the Work fails.
TEST_F(FakeNcclFailures, AWorkOfAStuckStreamFailsOnlyOnceNcclWasAborted) {
  run_ranks(2, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    if (world.rank() == 1) {
      nccl.abort_hangs = true;
      gpu.hold(stream);
    }
    world.barrier();
    Work const work = reduce_or_fail(world, values, stream);
    if (world.rank() == 1) {
      DeviceAccess::backend(world)->fail(ErrorCode::aborted, "enough");
      EXPECT_FALSE(work.wait_for(900ms)) << "the GPU may still write";
      nccl.abort_hangs = false;
    }
    expect_failed(world, work, stream, ErrorCode::aborted, {"enough"});
    if (world.rank() == 1) {
      EXPECT_EQ(values[0], 1.0F);
      gpu.release(stream);
    }
    Stream(stream).synchronize();
    world.barrier();
    // One rank has no communicator to split: all begin anew.
    world.connect(kGpu);
    std::vector<float> again(3, 1.0F);
    reduce(world, again, stream).wait();
    EXPECT_EQ(again[0], 2.0F);
  });
  EXPECT_EQ(gpu.count("ncclCommAbort"), 1U);
  EXPECT_EQ(gpu.count("ncclCommInitRankConfig"), 4U);
}

TEST_F(FakeNcclFailures, WhereTheAbortHangsTooTheErrorSaysThatBuffersAreInUse) {
  run_thread_ranks(
      1,
      [&](Communicator& world) {
        FakeNccl::connect(world);
        Stream const stream = gpu.make_stream();
        std::vector<float> values(4, 1.0F);
        nccl.abort_hangs = true;
        gpu.hold(stream);
        Work const work = reduce(world, values, stream);
        world.abort("enough");
        try {
          work.wait();
          ADD_FAILURE();
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::aborted);
          EXPECT_NE(std::string(error.what()).find("the buffers of all_reduce(4 × f32, sum), call 1 are still in use"),
                    std::string::npos)
              << error.what();
        }
        nccl.abort_hangs = false;
        while (nccl.live() > 0) std::this_thread::sleep_for(1ms);
        gpu.release(stream);
        Stream(stream).synchronize();
      },
      with_timeout(kImpatience));
}

// However many there are: the time limit is one, not one each.
TEST_F(FakeNcclFailures, WorksOfAStuckStreamFailTogether) {
  run_thread_ranks(
      1,
      [&](Communicator& world) {
        FakeNccl::connect(world);
        Stream const stream = gpu.make_stream();
        std::vector<float> values(4, 1.0F);
        nccl.abort_hangs = true;
        gpu.hold(stream);
        std::vector<Work> works;
        for (int i = 0; i < 4; ++i) works.push_back(reduce(world, values, stream));
        auto const began = std::chrono::steady_clock::now();
        world.abort("enough");
        for (auto const& work : works) EXPECT_THROW(work.wait(), Error);
        EXPECT_LT(std::chrono::steady_clock::now() - began, 3 * kImpatience);  // half a second, and the time limit
        nccl.abort_hangs = false;
        while (nccl.live() > 0) std::this_thread::sleep_for(1ms);
        gpu.release(stream);
        Stream(stream).synchronize();
      },
      with_timeout(kImpatience));
}

TEST_F(FakeNcclFailures, WhereOnlyAnAbortStopsAndItHangsTheTimeLimitIsOne) {
  run_thread_ranks(
      1,
      [&](Communicator& world) {
        FakeNccl::connect(world, 0, false);
        Stream const stream = gpu.make_stream();
        std::vector<float> values(4, 1.0F);
        nccl.abort_hangs = true;
        gpu.hold(stream);
        std::vector<Work> works;
        for (int i = 0; i < 4; ++i) works.push_back(reduce(world, values, stream));
        auto const began = std::chrono::steady_clock::now();
        world.abort("enough");
        for (auto const& work : works) EXPECT_THROW(work.wait(), Error);
        EXPECT_LT(std::chrono::steady_clock::now() - began, 3 * kImpatience);
        nccl.abort_hangs = false;
        while (nccl.live() > 0) std::this_thread::sleep_for(1ms);
        gpu.release(stream);
        Stream(stream).synchronize();
      },
      with_timeout(kImpatience));
}

TEST_F(FakeNcclFailures, AnAbortThatHangsDoesNotKeepTheOthersWaitingForTheOutcomeOfACreation) {
  nccl.init_hangs = true;
  nccl.abort_hangs = true;
  run_thread_ranks(
      2,
      [&](Communicator& world) {
        auto const began = std::chrono::steady_clock::now();
        EXPECT_THROW(FakeNccl::connect(world), Error);
        EXPECT_LT(std::chrono::steady_clock::now() - began, 14s) << "a second time limit";
      },
      with_timeout(8s));
  nccl.init_hangs = false;
  nccl.abort_hangs = false;
}

// NCCL writes to where the child was asked for until the parent is aborted.
TEST_F(FakeNcclFailures, ASplitThatDoesNotEndIsEndedByAnAbort) {
  run_thread_bootstraps(2, [&](std::shared_ptr<Bootstrap> const& bootstrap) {
    auto const all = nccl::NcclCommunicator::create(FakeNccl::libraries(), *bootstrap, 60s);
    if (bootstrap->rank() == 1) return;  // does not come
    std::thread stopper([&] {
      std::this_thread::sleep_for(50ms);
      all->stop();
    });
    auto const began = std::chrono::steady_clock::now();
    try {
      static_cast<void>(all->split(0, 0));
      ADD_FAILURE();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
    }
    stopper.join();
    EXPECT_LT(std::chrono::steady_clock::now() - began, kNoticed);
  });
}

}  // namespace
}  // namespace weft::test
