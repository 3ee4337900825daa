// What becomes of calls on a GPU when ranks differ, are late, die, or NCCL fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <thread>
#include <vector>

#include "collectives/device_access.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "cuda/fake/fake_nccl.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
constexpr Device kGpu{DeviceType::cuda, 0};

class FakeNcclFailures : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(gpu.violations(), std::vector<std::string>{});
    // Nobody waits long for an abort.
    for (int waited = 0; nccl.live() > 0 && waited < 2000; ++waited) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(nccl.live(), 0U) << "communicators that were not ended";
  }

  static BufferView on_gpu(std::vector<float>& values) { return {values.data(), values.size(), DataType::f32, kGpu}; }
  static Work reduce(Communicator& world, std::vector<float>& values, Stream const& stream) {
    return world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream});
  }
  /// A call that fails on the way, or later.
  static Work reduce_or_fail(Communicator& world, std::vector<float>& values, Stream const& stream) {
    try {
      return reduce(world, values, stream);
    } catch (Error const&) {
      return enqueue_work(Stream::cpu(), [error = std::current_exception()] { std::rethrow_exception(error); });
    }
  }
  /// What waiting for the Work, and every later call, throws.
  static void expect_failed(Communicator& world, Work const& work, Stream const& stream, ErrorCode code,
                            std::vector<std::string> const& words) {
    auto const expect = [&](auto const& body) {
      try {
        body();
        ADD_FAILURE() << "did not fail";
      } catch (Error const& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        for (auto const& word : words)
          EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      }
    };
    expect([&] { work.wait(); });
    std::vector<float> values(4);
    expect([&] { static_cast<void>(reduce(world, values, stream)); });
  }

  /// The same where the call in question may have been through before: later ones fail.
  static void expect_over(Communicator& world, Stream const& stream, ErrorCode code,
                          std::vector<std::string> const& words) {
    std::vector<float> values(4);
    Work const later = reduce_or_fail(world, values, stream);
    expect_failed(world, later, stream, code, words);
  }

  static CommunicatorOptions with_timeout(std::chrono::milliseconds timeout) {
    Config config;
    config.timeout = timeout;
    return {.config = config};
  }

  FakeGpu gpu;
  FakeNccl nccl;
};

TEST_F(FakeNcclFailures, CallsThatDifferNameBothAndTheRanksCanConnectAgain) {
  for (bool const with_revoke : {true, false}) {
    gpu.forget_calls();
    run_thread_ranks(3, [&](Communicator& world) {
      FakeNccl::connect(world, 0, with_revoke);
      Stream const stream = gpu.make_stream();
      std::vector<float> values(world.rank() == 1 ? 5 : 4, 1.0F);
      std::vector<float> later(9, 1.0F);
      Work const work = reduce_or_fail(world, values, stream);
      Work const behind = reduce_or_fail(world, later, stream);
      EXPECT_THROW(behind.wait(), Error);
      expect_failed(world, work, stream, ErrorCode::mismatch, {"call 1", "rank 1", "5 × f32", "4 × f32"});
      // Host memory is not concerned.
      std::vector<float> host(2, 1.0F);
      world.all_reduce(std::span<float const>(host), std::span(host), ReduceOp::sum);
      EXPECT_EQ(host[0], 3.0F);
      Stream(stream).synchronize();  // what NCCL stopped has ended
      if (with_revoke) {
        world.connect(kGpu);
        std::vector<float> again(9, 1.0F);
        reduce(world, again, stream).wait();
        EXPECT_EQ(again[0], 3.0F);
      }
    });
    EXPECT_EQ(gpu.count("ncclCommRevoke"), with_revoke ? 3U : 0U);
    EXPECT_EQ(gpu.count("ncclCommAbort"), with_revoke ? 0U : 3U);
    EXPECT_EQ(gpu.count("ncclCommSplit"), with_revoke ? 3U : 0U);
  }
}

TEST_F(FakeNcclFailures, ATimeoutNamesTheRankThatDidNotMakeTheCall) {
  run_thread_ranks(2, [&](Communicator& world) {
    FakeNccl::connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    if (world.rank() == 0) {
      Work const work =
          world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream, .timeout = 50ms});
      expect_failed(world, work, stream, ErrorCode::timeout,
                    {"all_reduce(4 × f32, sum), call 1", "50 ms", "rank 1 did not make it"});
    }
    world.barrier();
    EXPECT_THROW(static_cast<void>(reduce(world, values, stream)), Error);
  });
}

TEST_F(FakeNcclFailures, AStuckGpuIsNamed) {
  run_thread_ranks(2, [&](Communicator& world) {
    FakeNccl::connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    if (world.rank() == 1) gpu.hold(stream);
    Work const work =
        world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream, .timeout = 80ms});
    expect_failed(world, work, stream, ErrorCode::timeout, {"all_reduce", "WEFT_TIMEOUT"});
    if (world.rank() == 1) gpu.release(stream);
    Stream(stream).synchronize();
  });
}

TEST_F(FakeNcclFailures, ARankThatLeavesIsNamed) {
  run_thread_ranks(3, [&](Communicator& world) {
    FakeNccl::connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    reduce(world, values, stream).wait();
    if (world.rank() == 2) return;
    Work const work = reduce(world, values, stream);
    expect_failed(world, work, stream, ErrorCode::peer_lost, {"rank 2 left", "call 2"});
  });
}

TEST_F(FakeNcclFailures, AbortReachesEveryRank) {
  run_thread_ranks(2, [&](Communicator& world) {
    FakeNccl::connect(world);
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

TEST_F(FakeNcclFailures, NcclsAsynchronousErrorsFailAllRanks) {
  run_thread_ranks(2, [&](Communicator& world) {
    FakeNccl::connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    if (world.rank() == 0) {
      gpu.hold(stream);
      nccl.set_async_error(0, ncclRemoteError);
    }
    Work const work = reduce_or_fail(world, values, stream);
    expect_failed(world, work, stream, ErrorCode::peer_lost, {"rank 0", "NCCL", "remote process", "NCCL_DEBUG"});
    if (world.rank() == 0) {
      // A kernel that runs before it is revoked completes rank 1's call.
      while (gpu.count("ncclCommRevoke") < 2) std::this_thread::yield();
      gpu.release(stream);
      nccl.set_async_error(0, ncclSuccess);
    }
    Stream(stream).synchronize();
  });
}

TEST_F(FakeNcclFailures, ACallThatNcclRefusesFailsAllRanksAndNamesIt) {
  run_thread_ranks(2, [&](Communicator& world) {
    FakeNccl::connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    std::vector<float> all(4);
    std::array<std::size_t, 2> const counts{1, 3};
    BufferView const part(values.data(), counts[static_cast<std::size_t>(world.rank())], DataType::f32, kGpu);
    std::vector<float> host(1);
    struct Drain {
      Stream stream;
      ~Drain() { stream.synchronize(); }
    } const drain{stream};
    auto const gather = [&] { return world.all_gather(part, on_gpu(all), {counts, {}}, {.stream = stream}); };
    if (world.rank() == 0) {
      nccl.fail_next("ncclGroupEnd", ncclInternalError);
      try {
        static_cast<void>(gather());
        ADD_FAILURE();
      } catch (Error const& error) {
        EXPECT_EQ(error.code(), ErrorCode::system) << error.what();
        EXPECT_NE(std::string(error.what()).find("ncclGroupEnd"), std::string::npos) << error.what();
      }
      EXPECT_THROW(static_cast<void>(reduce(world, values, stream)), Error);
      world.send(std::span<float const>(host), 1);
      return;
    }
    world.recv(std::span(host), 0);  // so that rank 0's call is the one that fails
    Work work;
    try {
      work = gather();
    } catch (Error const& error) {  // heard of it before
      EXPECT_EQ(error.code(), ErrorCode::system) << error.what();
      return;
    }
    EXPECT_THROW(work.wait(), Error);
  });
}

TEST_F(FakeNcclFailures, ACreationThatFailsOrHangsFailsOnEveryRank) {
  nccl.fail_next("ncclCommInitRankConfig", ncclSystemError);
  run_thread_ranks(
      2,
      [&](Communicator& world) {
        try {
          FakeNccl::connect(world);
          ADD_FAILURE();
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::system) << error.what();
          EXPECT_NE(std::string(error.what()).find("ncclCommInitRankConfig"), std::string::npos) << error.what();
        }
      },
      with_timeout(1000ms));
  nccl.init_hangs = true;
  run_thread_ranks(
      2,
      [&](Communicator& world) {
        try {
          FakeNccl::connect(world);
          ADD_FAILURE();
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
        }
      },
      with_timeout(600ms));
  nccl.init_hangs = false;
}

TEST_F(FakeNcclFailures, SurvivorsShrinkToACommunicatorOfTheirOwn) {
  for (bool const revoked : {false, true}) {
    gpu.forget_calls();
    run_thread_bootstraps(3, [&](std::shared_ptr<Bootstrap> const& bootstrap) {
      auto const all = nccl::NcclCommunicator::create(FakeNccl::libraries(), *bootstrap, 1000ms);
      if (bootstrap->rank() == 1) {
        all->stop();
        return;
      }
      if (revoked) all->stop();
      std::array const lost{1};
      auto const rest = all->shrink(lost);
      ASSERT_NE(rest, nullptr);
      EXPECT_TRUE(all->is_stopped());
      float value = 1;
      Stream stream = gpu.make_stream();
      {
        nccl::NcclCommunicator::Use const use(*rest);
        rest->settle(
            rest->nccl().all_reduce(&value, &value, 1, ncclFloat32, ncclSum, use.handle(), cuda::handle_of(stream)),
            "ncclAllReduce");
      }
      stream.synchronize();
      EXPECT_EQ(value, 2.0F);
    });
    EXPECT_EQ(gpu.count(revoked ? "ncclCommShrink" : "ncclCommShrink(abort)"), 2U);
  }
}

TEST_F(FakeNcclFailures, MessagesThatDifferNameBothSides) {
  run_thread_ranks(3, [&](Communicator& world) {
    FakeNccl::connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(8, 1.0F);
    auto const some = on_gpu(values).slice(0, world.rank() == 0 ? 4 : 5);
    try {
      if (world.rank() == 0) {
        world.send(on_gpu(values), 1, {.stream = stream});  // this one is received as it is sent
        world.send(some, 1, {.stream = stream});
      } else if (world.rank() == 1) {
        world.recv(on_gpu(values), 0, {.stream = stream});
        world.recv(some, 0, {.stream = stream});
      }
    } catch (Error const& error) {  // it is known already
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
    }
    expect_over(world, stream, ErrorCode::mismatch,
                {"rank 0 gives rank 1", "2. time", "send(4 × f32)", "recv(5 × f32)"});
    Stream(stream).synchronize();
  });
}

TEST_F(FakeNcclFailures, PartsThatDifferNameWhoGivesAndWhoExpects) {
  using Body = std::function<Work(Communicator&, BufferView, BufferView, CollectiveOptions const&)>;
  // Rank 2 and the root, or each other rank, are of different opinions about rank 2's part.
  std::array<std::size_t, 3> const counts{1, 2, 3};
  std::array<std::size_t, 3> const twos{2, 2, 2};
  std::array<std::size_t, 3> const others{2, 2, 1};
  std::vector<std::pair<char const*, Body>> const cases{
      {"gather_v(",
       [&](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         std::size_t const mine = world.rank() == 2 ? 4 : counts[static_cast<std::size_t>(world.rank())];
         return world.gather(send.slice(0, mine), recv.slice(0, 6), {counts, {}}, 0, how);
       }},
      {"scatter_v(",
       [&](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         std::size_t const mine = world.rank() == 2 ? 4 : counts[static_cast<std::size_t>(world.rank())];
         return world.scatter(send.slice(0, 6), {counts, {}}, recv.slice(0, mine), 0, how);
       }},
      {"all_to_all_v(",
       [&](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         auto const& given = world.rank() == 0 ? others : twos;
         return world.all_to_all(send.slice(0, world.rank() == 0 ? 5 : 6), {given, {}}, recv.slice(0, 6), {twos, {}},
                                 how);
       }},
  };
  for (auto const& [name, body] : cases) {
    run_thread_ranks(3, [&, call = name, make = body](Communicator& world) {
      FakeNccl::connect(world);
      Stream const stream = gpu.make_stream();
      std::vector<float> from(8, 1.0F);
      std::vector<float> to(8);
      try {
        static_cast<void>(make(world, on_gpu(from), on_gpu(to), {.stream = stream}));
      } catch (Error const& error) {  // it is known already
        EXPECT_EQ(error.code(), ErrorCode::mismatch);
      }
      expect_over(world, stream, ErrorCode::mismatch, {"rank 0", "rank 2", call, "1. time"});
      Stream(stream).synchronize();
    });
  }
}

TEST_F(FakeNcclFailures, ATimeoutOfAMessageNamesWhoDidNotMakeTheOtherSide) {
  run_thread_ranks(3, [&](Communicator& world) {
    FakeNccl::connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    if (world.rank() == 0) {
      Work const work = world.recv(on_gpu(values), 2, {.stream = stream, .timeout = 50ms});
      expect_failed(world, work, stream, ErrorCode::timeout,
                    {"rank 0: recv", "50 ms", "rank 2 did not send all that rank 0 expects of it (it sent 0 times)"});
    }
    world.barrier();
  });
}

TEST_F(FakeNcclFailures, WhatIsRefusedNamesRankAndCall) {
  run_thread_ranks(2, [&](Communicator& world) {
    FakeNccl::connect(world);
    std::vector<float> values(4, 1.0F);
    world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum);
    std::vector<std::int32_t> whole(4, 1);
    BufferView const view(whole.data(), 4, DataType::i32, kGpu);
    try {
      world.all_reduce(view, view, ReduceOp::band);
      ADD_FAILURE();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      auto const wanted =
          "rank " + std::to_string(world.rank()) + ": all_reduce(4 × i32, band), call 2 on cuda:0: NCCL has";
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
    }
  });
}

// A stream that is stuck before NCCL's kernel: revoking does not end it, so NCCL is aborted before the Work fails.
TEST_F(FakeNcclFailures, AWorkOfAStuckStreamFailsOnlyOnceNcclWasAborted) {
  run_thread_ranks(2, [&](Communicator& world) {
    FakeNccl::connect(world);
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
      with_timeout(200ms));
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
        EXPECT_LT(std::chrono::steady_clock::now() - began, 2200ms);  // half a second, and the time limit
        nccl.abort_hangs = false;
        while (nccl.live() > 0) std::this_thread::sleep_for(1ms);
        gpu.release(stream);
        Stream(stream).synchronize();
      },
      with_timeout(1000ms));
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
        Work const one = reduce(world, values, stream);
        Work const two = reduce(world, values, stream);
        auto const began = std::chrono::steady_clock::now();
        world.abort("enough");
        EXPECT_THROW(one.wait(), Error);
        EXPECT_THROW(two.wait(), Error);
        EXPECT_LT(std::chrono::steady_clock::now() - began, 1800ms);
        nccl.abort_hangs = false;
        while (nccl.live() > 0) std::this_thread::sleep_for(1ms);
        gpu.release(stream);
        Stream(stream).synchronize();
      },
      with_timeout(1000ms));
}

TEST_F(FakeNcclFailures, AnAbortThatHangsDoesNotKeepTheOthersWaitingForTheOutcomeOfACreation) {
  nccl.init_hangs = true;
  nccl.abort_hangs = true;
  run_thread_ranks(
      2,
      [&](Communicator& world) {
        auto const began = std::chrono::steady_clock::now();
        EXPECT_THROW(FakeNccl::connect(world), Error);
        EXPECT_LT(std::chrono::steady_clock::now() - began, 4800ms);
      },
      with_timeout(3000ms));
  nccl.init_hangs = false;
  nccl.abort_hangs = false;
}

// NCCL writes to where the child was asked for until the parent is aborted.
TEST_F(FakeNcclFailures, ASplitThatDoesNotEndIsEndedByAnAbort) {
  run_thread_bootstraps(2, [&](std::shared_ptr<Bootstrap> const& bootstrap) {
    auto const all = nccl::NcclCommunicator::create(FakeNccl::libraries(), *bootstrap, 4000ms);
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
    EXPECT_LT(std::chrono::steady_clock::now() - began, 2000ms);
  });
}

TEST_F(FakeNcclFailures, CommunicatorsShrinkWithTheirGpus) {
  for (bool const with_revoke : {true, false}) {
    gpu.forget_calls();
    run_thread_ranks(4, [&](Communicator& world) {
      FakeNccl::connect(world, 0, with_revoke);
      Stream const stream = gpu.make_stream();
      std::vector<float> values(4, 1.0F);
      reduce(world, values, stream).wait();
      auto const number = world.rank();
      if (number == 2) return;
      Work const work = reduce_or_fail(world, values, stream);
      expect_failed(world, work, stream, ErrorCode::peer_lost, {"rank 2 left"});
      auto rest = world.shrink();
      EXPECT_EQ(rest.size(), 3);
      EXPECT_EQ(rest.rank(), number == 3 ? 2 : number);
      std::vector<float> again(5, 1.0F);
      reduce(rest, again, stream).wait();
      EXPECT_EQ(again[4], 3.0F);
      EXPECT_THROW(static_cast<void>(reduce(world, values, stream)), Error);
    });
    EXPECT_EQ(gpu.count("ncclCommShrink"), with_revoke ? 3U : 0U);
    EXPECT_EQ(gpu.count("ncclCommInitRankConfig"), with_revoke ? 4U : 7U);
  }
}

TEST_F(FakeNcclFailures, WhereNcclCannotShrinkTheRanksBeginAnew) {
  run_thread_ranks(
      3,
      [&](Communicator& world) {
        FakeNccl::connect(world);
        if (world.rank() == 0) {
          nccl.fail_next("ncclCommShrink", ncclInternalError);
          return;
        }
        auto rest = world.shrink();
        Stream const stream = gpu.make_stream();
        std::vector<float> again(5, 1.0F);
        reduce(rest, again, stream).wait();
        EXPECT_EQ(again[4], 2.0F);
      },
      with_timeout(4000ms));
}

// Ranks as processes, each with a GPU of its own: one is killed while the other waits for it on the GPU.
TEST(FakeNcclKilled, TheOthersAreToldAndGoOn) {
  auto const exits = run_forked_ranks(2, [](Communicator& world) {
    auto& gpu = *new FakeGpu;  // outlives the communicator, as does what follows
    auto& nccl = *new FakeNccl;
    nccl.others_are_elsewhere = true;
    FakeNccl::connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    BufferView const view(values.data(), 4, DataType::f32, kGpu);
    Work const work = world.all_reduce(view, view, ReduceOp::sum, {.stream = stream});
    if (world.rank() == 1) {
      std::this_thread::sleep_for(100ms);
      ::kill(::getpid(), SIGKILL);
    }
    auto const began = std::chrono::steady_clock::now();
    try {
      work.wait();
      ADD_FAILURE();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_lost);
      for (auto const* word : {"rank 1 died before completing all_reduce(4 × f32, sum), call 1 on cuda:0",
                               "it made 1 collective call there; rank 0 waited", "shrink()"})
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
    auto rest = world.shrink();
    EXPECT_EQ(rest.size(), 1);
    rest.all_reduce(view, view, ReduceOp::sum, {.stream = stream}).wait();
    EXPECT_EQ(values[0], 1.0F);
    EXPECT_EQ(gpu.count("ncclCommShrink"), 1U);
    EXPECT_EQ(gpu.violations(), std::vector<std::string>{});
    return 0;
  });
  EXPECT_EQ(exits[1].signal, SIGKILL) << exits[1].output;
  EXPECT_EQ(exits[0].code, 0) << exits[0].output;
}

TEST_F(FakeNcclFailures, TheFlightRecorderWritesDownWhatFailedOnTheGpu) {
  std::filesystem::path const folder =
      std::filesystem::path(::testing::TempDir()) / ("weft_fake_nccl_flight." + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  Config config;
  config.flight_directory = folder.string();
  run_thread_ranks(1,
                   [&](Communicator& world) {
                     FakeNccl::connect(world);
                     Stream const stream = gpu.make_stream();
                     std::vector<float> values(4, 1.0F);
                     Work const done = reduce(world, values, stream);
                     done.wait();
                     EXPECT_LE(done.timings().enqueued, done.timings().finished);
                     gpu.hold(stream);
                     Work const work = reduce(world, values, stream);
                     world.abort("enough");
                     expect_failed(world, work, stream, ErrorCode::aborted, {"rank 0", "enough"});
                     gpu.release(stream);
                     Stream(stream).synchronize();
                   },
                   {.config = config});
  bool found = false;
  for (auto const& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    std::string const text{std::istreambuf_iterator<char>(file), {}};
    found = found || (text.find("\"name\": \"nccl\"") != std::string::npos &&
                      text.find("\"state\": \"finished\"") != std::string::npos &&
                      text.find("\"state\": \"failed\"") != std::string::npos &&
                      text.find("all_reduce(4 × f32, sum)") != std::string::npos);
  }
  EXPECT_TRUE(found);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft::test
