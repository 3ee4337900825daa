// What becomes of calls in two levels when ranks differ, are late or leave, or NCCL or a GPU fails.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/two_level/two_level_factory.hpp"
#include "cuda/fake/fake_nccl_failures.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kMany = 5000;

class FakeTwoLevelFailures : public FakeNcclFailures, public ::testing::WithParamInterface<bool> {
 protected:
  /// Two hosts of two ranks. With GetParam() NCCL has all ranks.
  void run(std::function<void(Communicator&)> const& body, CommunicatorOptions const& options = {}) {
    run_thread_ranks(
        4,
        [&](Communicator& world) {
          connect(world);
          body(world);
        },
        options);
  }
  static void connect(Communicator& world) {
    auto const factory = two_level::factory({.libraries = FakeNccl::libraries(),
                                             .host = world.rank() < 2 ? "a" : "b",
                                             .spans = GetParam(),
                                             .chunk_bytes = 4096,
                                             .flat_bytes = 0});
    DeviceAccess::connect(world, *factory);
  }
  static Work start(Communicator& world, std::vector<float>& values, Stream const& stream,
                    std::chrono::milliseconds timeout = 10s) {
    return world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream, .timeout = timeout});
  }
  /// As start(), where the call may fail at once.
  static Work start_or_fail(Communicator& world, std::vector<float>& values, Stream const& stream,
                            std::chrono::milliseconds timeout = 10s) {
    try {
      return start(world, values, stream, timeout);
    } catch (Error const&) {
      return enqueue_work(Stream::cpu(), [error = std::current_exception()] { std::rethrow_exception(error); });
    }
  }
};

TEST_P(FakeTwoLevelFailures, CallsThatDifferNameBothAndTheRanksCanConnectAgain) {
  for (int const odd : {1, 3}) {
    run([&](Communicator& world) {
      Stream const stream = gpu.make_stream();
      std::vector<float> values(world.rank() == odd ? kMany + 2 : kMany, 1.0F);
      Work const work = start_or_fail(world, values, stream);
      expect_failed(world, work, stream, ErrorCode::mismatch,
                    {"call 1", "rank " + std::to_string(odd), "5002 × f32", "5000 × f32"});
      // Host memory is not concerned.
      std::vector<float> host(2, 1.0F);
      world.all_reduce(std::span<float const>(host), std::span(host), ReduceOp::sum);
      EXPECT_EQ(host[0], 4.0F);
      auto const again = DeviceAccess::backend(world)->renew({});
      DeviceAccess::connect(world, *again);
      std::vector<float> more(kMany, 1.0F);
      start(world, more, stream).wait();
      EXPECT_EQ(more, std::vector<float>(kMany, 4.0F));
    });
  }
}

TEST_P(FakeTwoLevelFailures, ATimeoutNamesTheRankThatDidNotMakeTheCall) {
  run([&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(kMany, 1.0F);
    if (world.rank() != 3) {
      Work const work = start_or_fail(world, values, stream, world.rank() == 0 ? kImpatience : 60s);
      expect_failed(world, work, stream, ErrorCode::timeout,
                    {"all_reduce(5000 × f32, sum), call 1", "rank 3", "4000 ms"});
    }
    world.barrier();
  });
}

TEST_P(FakeTwoLevelFailures, AStuckStreamIsNamed) {
  run([&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(kMany, 1.0F);
    start(world, values, stream).wait();
    if (world.rank() == 2) gpu.hold(stream);
    Work const work = start_or_fail(world, values, stream, world.rank() == 2 ? kImpatience : 60s);
    expect_failed(world, work, stream, ErrorCode::timeout, {"rank 2: all_reduce", "call 2", "what its stream does"});
    world.barrier();
    if (world.rank() == 2) gpu.release(stream);
    Stream(stream).synchronize();
  });
}

TEST_P(FakeTwoLevelFailures, ARankThatLeavesIsNamedAndWhatWasDoneStays) {
  std::atomic<int> called{0};
  run([&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(kMany, 1.0F);
    Work const first = start(world, values, stream);
    if (world.rank() == 3) {
      first.wait();
      while (called < 3) std::this_thread::yield();
      return;
    }
    std::vector<float> more(kMany, 1.0F);
    first.wait();
    Work const second = start(world, more, stream);
    ++called;
    expect_failed(world, second, stream, ErrorCode::peer_lost, {"rank 3", "left", "call 2"});
    EXPECT_EQ(values, std::vector<float>(kMany, 4.0F));
  });
}

TEST_P(FakeTwoLevelFailures, AbortReachesEveryRankAlsoOneThatHasNoCall) {
  run([&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(kMany, 1.0F);
    if (world.rank() == 1) {
      std::this_thread::sleep_for(10ms);
      DeviceAccess::backend(world)->fail(ErrorCode::aborted, "enough");
    } else if (world.rank() == 2) {
      Work const work = start_or_fail(world, values, stream);
      expect_failed(world, work, stream, ErrorCode::aborted, {"rank 1", "enough"});
    }
    for (int looks = 0; looks < 30'000 && !DeviceAccess::backend(world)->failure(); ++looks)
      std::this_thread::sleep_for(1ms);
    std::vector<float> later(4);
    EXPECT_THROW(start(world, later, stream).wait(), Error);
    world.barrier();
  });
}

TEST_P(FakeTwoLevelFailures, WhatNcclSaysLaterFailsAllRanksAndIsNamed) {
  run([&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(kMany, 1.0F);
    start(world, values, stream).wait();
    world.barrier();
    if (world.rank() == 0) nccl.set_async_error(GetParam() ? 3 : 1, ncclSystemError);  // ranks 1 and 3, or 3
    for (int looks = 0; looks < 30'000 && !DeviceAccess::backend(world)->failure(); ++looks)
      std::this_thread::sleep_for(1ms);
    Work const later = start_or_fail(world, values, stream);
    expect_failed(world, later, stream, ErrorCode::system, {"rank ", "NCCL failed on cuda:0"});
    world.barrier();
  });
}

TEST_P(FakeTwoLevelFailures, WhatNcclRefusesFailsAllRanksAndIsNamed) {
  run([&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(kMany, 1.0F);
    start(world, values, stream).wait();
    world.barrier();
    if (world.rank() == 2) nccl.fail_next("ncclGroupEnd", ncclInternalError);
    world.barrier();
    Work const work = start_or_fail(world, values, stream);
    expect_failed(world, work, stream, ErrorCode::system, {"rank ", "ncclGroupEnd"});
    world.barrier();
  });
}

TEST_P(FakeTwoLevelFailures, WhatCudaRefusesFailsAllRanksAndIsNamed) {
  run([&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(kMany, 1.0F);
    start(world, values, stream).wait();
    world.barrier();
    if (world.rank() == 1) {
      gpu.fail_next("cuStreamWaitValue32", cudaErrorInvalidValue);
      expect_failed(world, start_or_fail(world, values, stream), stream, ErrorCode::system,
                    {"rank 1: all_reduce", "cuStreamWaitValue32"});
    }
    world.barrier();
    if (world.rank() != 1) {
      expect_failed(world, start_or_fail(world, values, stream), stream, ErrorCode::system,
                    {"rank 1: all_reduce", "cuStreamWaitValue32"});
    }
    world.barrier();
  });
}

// Also where all that the host does is over: of three steps on two hosts that is the last of twelve calls.
TEST_P(FakeTwoLevelFailures, WhatGpusDoAmongThemselvesIsTimed) {
  for (int const ending : {0, GetParam() ? 0 : 11}) {
    nccl.ending_collectives = -1;
    run([&](Communicator& world) {
      Stream const stream = gpu.make_stream();
      std::vector<float> values(kMany, 1.0F);
      start(world, values, stream).wait();
      world.barrier();
      if (world.rank() == 0) nccl.ending_collectives = ending;
      world.barrier();
      Work const work = start_or_fail(world, values, stream, kImpatience);
      if (ending > 0 && world.rank() != 0) {
        EXPECT_THROW((work.wait(), start(world, values, stream).wait()), Error);  // the other host may be through
      } else if (ending == 0) {
        expect_failed(world, work, stream, ErrorCode::timeout, {"all_reduce(5000 × f32, sum), call 2", "4000 ms"});
      }
      for (int looks = 0; looks < 30'000 && !DeviceAccess::backend(world)->failure(); ++looks)
        std::this_thread::sleep_for(1ms);
      std::vector<float> later(4);
      expect_failed(world, start_or_fail(world, later, stream), stream, ErrorCode::timeout, {"call 2", "4000 ms"});
      world.barrier();
    });
  }
}

// Of each host the first rank stops what its GPU does: in the calls before the exchange, or in those after it.
TEST_P(FakeTwoLevelFailures, WhatEndsSinceAnotherRankHasStoppedHasNotSucceeded) {
  for (int round = 0; round < 20; ++round) {
    nccl.ending_collectives = GetParam() || round % 2 == 0 ? 0 : 2;
    run([&](Communicator& world) {
      Stream const stream = gpu.make_stream();
      std::vector<float> values(512, 1.0F);
      Work const work = start(world, values, stream);
      world.barrier();
      std::this_thread::sleep_for(5ms);  // so that the kernels run
      if (world.rank() == 0) DeviceAccess::backend(world)->fail(ErrorCode::aborted, "enough");
      expect_failed(world, work, stream, ErrorCode::aborted, {"rank 0", "enough"});
      world.barrier();
    });
  }
}

// Some wait for other hosts, some for their GPU, and none for the time limit.
TEST_P(FakeTwoLevelFailures, AbortEndsEveryWaitAtOnce) {
  run([&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(kMany, 1.0F);
    start(world, values, stream).wait();
    world.barrier();
    if (world.rank() == 0) nccl.ending_collectives = GetParam() ? 0 : 1;  // of one host
    world.barrier();
    auto const began = std::chrono::steady_clock::now();
    Work const work = start_or_fail(world, values, stream, 100s);
    if (world.rank() == 0) {
      std::this_thread::sleep_for(100ms);
      DeviceAccess::backend(world)->fail(ErrorCode::aborted, "enough");
    }
    expect_failed(world, work, stream, ErrorCode::aborted, {"rank 0", "enough"});
    EXPECT_LT(std::chrono::steady_clock::now() - began, kNoticed);
    world.barrier();
  });
}

TEST_P(FakeTwoLevelFailures, NcclThatDoesNotComeUpIsToldToAllRanks) {
  nccl.fail_next("ncclCommInitRankConfig", ncclSystemError);
  run_thread_ranks(
      4,
      [&](Communicator& world) {
        try {
          connect(world);
          ADD_FAILURE() << "NCCL did not come up";
        } catch (Error const& error) {
          EXPECT_NE(std::string(error.what()).find("ncclCommInitRankConfig"), std::string::npos) << error.what();
        }
      },
      with_timeout(kImpatience));
}

TEST_P(FakeTwoLevelFailures, RanksThatAreLeftGoOn) {
  run([&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(kMany, 1.0F);
    start(world, values, stream).wait();
    world.barrier();  // what is not seen to be through when a rank leaves fails
    auto const number = world.rank();
    if (number == 2) return;
    Work const work = start_or_fail(world, values, stream);
    expect_failed(world, work, stream, ErrorCode::peer_lost, {"rank 2"});
    auto rest = world.shrink();
    EXPECT_EQ(rest.size(), 3);
    std::vector<float> again(kMany, 1.0F);
    start(rest, again, stream).wait();
    EXPECT_EQ(again, std::vector<float>(kMany, 3.0F));
  });
}

// false: between hosts by host memory; true: all by NCCL.
INSTANTIATE_TEST_SUITE_P(NcclSpans, FakeTwoLevelFailures, ::testing::Bool());

}  // namespace
}  // namespace weft::test
