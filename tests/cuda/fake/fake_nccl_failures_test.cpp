// What becomes of calls on a GPU when ranks differ, are late, die, or NCCL fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/fake/fake_nccl_failures.hpp"

namespace weft::test {
namespace {

// The others may not have heard of it when they split: all go by what the ranks say of themselves.
TEST_F(FakeNcclFailures, SplitAfterAFailureThatOneRankKnowsOfBeginsAnew) {
  run_ranks(3, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    world.barrier();
    if (world.rank() == 1) DeviceAccess::backend(world)->fail(ErrorCode::aborted, "enough");
    auto part = world.split(0, -world.rank());
    ASSERT_TRUE(part);
    EXPECT_EQ(DeviceAccess::backend(*part), nullptr);  // made by the first call, or connect()
    FakeNccl::connect(*part);
    std::vector<float> values(4, 1.0F);
    reduce(*part, values, stream).wait();
    EXPECT_EQ(values[0], 3.0F);
  });
}

TEST_F(FakeNcclFailures, RanksConnectAgainAfterAFailureThatOneRankKnowsOf) {
  Config config;
  config.timeout = kImpatience;
  run_thread_ranks(3,
                   [&](Communicator& world) {
                     FakeNccl::connect(world);
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
  run_ranks(2, [&](Communicator& world) {
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

TEST_F(FakeNcclFailures, ARankThatLeavesIsNamed) {
  std::atomic<int> called{0};
  run_ranks(3, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    reduce(world, values, stream).wait();
    if (world.rank() == 2) {
      while (called < 2) std::this_thread::yield();
      return;
    }
    Work const work = reduce(world, values, stream);
    ++called;
    expect_failed(world, work, stream, ErrorCode::peer_lost, {"rank 2 left", "call 2"});
  });
}

TEST_F(FakeNcclFailures, NcclsAsynchronousErrorsFailAllRanks) {
  run_ranks(2, [&](Communicator& world) {
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

TEST_F(FakeNcclFailures, AGpuThatFailsFailsAllRanksAndIsNamed) {
  run_ranks(2, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    if (world.rank() == 0) gpu.hold(stream);
    Work const work = reduce(world, values, stream);
    world.barrier();  // all have made the call before it fails
    if (world.rank() == 0) gpu.break_streams_here();
    try {
      work.wait();
      ADD_FAILURE();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::system) << error.what();
      EXPECT_NE(std::string(error.what()).find("cudaEventQuery"), std::string::npos) << error.what();
    }
    for (int looks = 0; looks < 30'000 && !DeviceAccess::backend(world)->failure(); ++looks)
      std::this_thread::sleep_for(1ms);
    expect_over(world, stream, ErrorCode::system, {"rank 0: all_reduce", "call 1 on cuda:0", "cudaEventQuery"});
    world.barrier();
  });
}

TEST_F(FakeNcclFailures, WhoIsGoneIsNamedThoughNcclNoticesFirst) {
  std::atomic<int> told{0};
  run_ranks(3, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    reduce(world, values, stream).wait();
    if (world.rank() == 2) {
      world.barrier();
      while (told < 2) std::this_thread::yield();
      return;
    }
    Work const work = reduce(world, values, stream);
    world.barrier();  // from NCCL's error on there is little time until it is told
    nccl.set_async_error(world.rank(), ncclRemoteError);
    ++told;
    expect_failed(world, work, stream, ErrorCode::peer_lost, {"rank 2 left", "call 2"});
    nccl.set_async_error(world.rank(), ncclSuccess);
  });
}

TEST_F(FakeNcclFailures, ACallThatNcclRefusesFailsAllRanksAndNamesIt) {
  run_ranks(2, [&](Communicator& world) {
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
      with_timeout(kImpatience));
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
      with_timeout(kImpatience));
  nccl.init_hangs = false;
}

TEST_F(FakeNcclFailures, MemoryThatOneRankDoesNotGetFailsTheConnectionOnEveryRank) {
  run_thread_ranks(
      3,
      [&](Communicator& world) {
        if (world.rank() == 0) gpu.fail_next("cudaMalloc", cudaErrorMemoryAllocation);
        world.barrier();
        try {
          FakeNccl::connect(world);
          ADD_FAILURE();
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
          EXPECT_NE(std::string(error.what()).find("cudaMalloc"), std::string::npos) << error.what();
        }
      },
      with_timeout(kImpatience));
}

TEST_F(FakeNcclFailures, AWindowThatIsNotFinishedFailsAllRanksWhoCanConnectAgain) {
  nccl.windows_hang = true;
  run_ranks(
      2,
      [&](Communicator& world) {
        try {
          static_cast<void>(world.allocate(1000, DataType::f32, kGpu));
          ADD_FAILURE();
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
          EXPECT_NE(std::string(error.what()).find("ncclCommWindowRegister"), std::string::npos) << error.what();
        }
        world.connect(kGpu);
        Stream const stream = gpu.make_stream();
        std::vector<float> values(4, 1.0F);
        reduce(world, values, stream).wait();
        EXPECT_EQ(values[0], 2.0F);
      },
      with_timeout(kImpatience));
}

TEST_F(FakeNcclFailures, MessagesThatDifferNameBothSides) {
  run_ranks(3, [&](Communicator& world) {
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
  run_ranks(3, [&](Communicator& world) {
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
  run_ranks(2, [&](Communicator& world) {
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

// Messages are numbered by themselves: they take no collective's place.
TEST_F(FakeNcclFailures, TheFlightRecorderKeepsMessagesApart) {
  std::filesystem::path const folder =
      std::filesystem::path(::testing::TempDir()) / ("weft_fake_nccl_messages." + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  Config config;
  config.flight_directory = folder.string();
  std::atomic<bool> aborted{false};
  run_thread_ranks(2,
                   [&](Communicator& world) {
                     FakeNccl::connect(world);
                     Stream const stream = gpu.make_stream();
                     std::vector<float> values(4, 1.0F);
                     reduce(world, values, stream).wait();
                     bool const sends = world.rank() == 0;
                     for (bool const fails : {false, true}) {
                       world.barrier();
                       if (fails && !sends) gpu.hold(stream);
                       auto const some = on_gpu(values).slice(0, fails ? 2 : 3);
                       Work const work =
                           sends ? world.send(some, 1, {.stream = stream}) : world.recv(some, 0, {.stream = stream});
                       if (!fails) {
                         work.wait();
                         continue;
                       }
                       world.barrier();  // both have made the call before it fails
                       if (sends) {      // its part may be through, but whoever leaves before the abort is its reason
                         while (!aborted) std::this_thread::yield();
                         return;
                       }
                       world.abort("enough");
                       aborted = true;
                       EXPECT_THROW(work.wait(), Error);
                       gpu.release(stream);
                     }
                     Stream(stream).synchronize();
                   },
                   {.config = config});
  std::string received;
  for (auto const& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    std::string const text{std::istreambuf_iterator<char>(file), {}};
    if (text.find("\"name\": \"nccl\"") != std::string::npos && text.find("\"rank\": 1") != std::string::npos)
      received = text;
  }
  auto const calls = received.find("\"calls\"");
  auto const messages = received.find("\"messages\"");
  ASSERT_LT(calls, messages) << received;
  EXPECT_NE(received.find("all_reduce(4 × f32, sum)"), std::string::npos) << received;
  EXPECT_EQ(received.find("\"call\": \"recv"), std::string::npos) << received;
  for (auto const* const word : {"recv(3 × f32", "recv(2 × f32", "\"finished\"", "\"failed\"", "enough"})
    EXPECT_NE(received.find(word, messages), std::string::npos) << word << "\n" << received;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft::test
