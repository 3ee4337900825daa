// Every operation over the fake NCCL: what it leaves, and what it was made of.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/cases/attempt.hpp"
#include "collectives/device_access.hpp"
#include "cuda/device_cases.hpp"
#include "cuda/fake/on_fake_nccl.hpp"
#include "cuda/fake/random_cases.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"
#include "weft/event.hpp"
#include "weft/group.hpp"

namespace weft::test {
namespace {

class FakeNcclTest : public OnFakeNccl {
 protected:
  static BufferView on_gpu(std::vector<float>& values) { return {values.data(), values.size(), DataType::f32, kGpu}; }
};

/// Whether NCCL can do a case, with results that do not depend on the order of additions (the fake adds as Weft does).
bool can_do(Case const& one) {
  if (one.kind == Kind::scan || one.kind == Kind::exscan) return false;
  if (!reduces(one.kind)) return true;
  bool const has_type = is_integer(one.dtype) ? size_of(one.dtype) != 2 : is_floating_point(one.dtype);
  if (one.op == ReduceOp::premul_sum) return one.dtype == DataType::f32 || one.dtype == DataType::f64;
  return has_type && one.op <= ReduceOp::max;
}

TEST_F(FakeNcclTest, EveryCallGivesTheSerialResult) {
  for (int const ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [&](Communicator& world) {
      run_cases(gpu, world, {20 + static_cast<std::uint64_t>(ranks), 250, can_do});
    });
  }
  for (auto const* name :
       {"ncclAllReduce", "ncclReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast", "ncclAlltoAll",
        "ncclGather", "ncclScatter", "ncclSend", "ncclRecv", "ncclRedOpCreatePreMulSum"}) {
    EXPECT_GT(gpu.count(name), 5U) << name;
  }
}

// What cuda_nccl_test does on a GPU.
TEST_F(FakeNcclTest, CallsGiveWhatTheyGiveOnTheHost) {
  for (int const ranks : {1, 3}) {
    run_ranks(ranks, [](Communicator& world) { expect_as_on_host(world, kGpu); });
  }
}

TEST_F(FakeNcclTest, ACallIsOneOfNcclsOnTheCallersStreamAndNobodyWaits) {
  run_ranks(2, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(100, 1.0F);
    auto const before = gpu.host_waits_here();
    Work const work = world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream});
    EXPECT_EQ(gpu.host_waits_here(), before);
    EXPECT_EQ(gpu.count_here("ncclAllReduce"), 1U);
    EXPECT_EQ(gpu.count_here("ncclGroupStart"), 0U);
    EXPECT_EQ(gpu.count_here("cudaStreamWaitEvent"), 0U);
    for (auto const& call : gpu.calls()) {
      if (call.name != "ncclAllReduce" || call.thread != std::this_thread::get_id()) continue;
      EXPECT_EQ(call.on, cuda::handle_of(stream));
    }
    work.wait();
    EXPECT_EQ(values, std::vector<float>(100, 2.0F));
  });
}

// What earlier calls were made of is used again, wherever their Works ended.
TEST_F(FakeNcclTest, ACallIsNcclsAndOneEventRecord) {
  run_ranks(2, [&](Communicator& world) {
    Stream stream = gpu.make_stream();
    std::vector<float> values(8, 1.0F);
    auto const make_calls = [&](int calls) {
      for (int i = 0; i < calls; ++i) {
        static_cast<void>(world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::max, {.stream = stream}));
        if (i % 50 == 49) {
          stream.synchronize();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the watch takes away what is through
        }
      }
    };
    make_calls(400);
    world.barrier();
    if (world.rank() == 0) gpu.forget_calls();
    world.barrier();
    make_calls(100);
    std::map<std::string, int> calls;
    for (auto const& call : gpu.calls()) {
      if (call.thread == std::this_thread::get_id()) ++calls[call.name];
    }
    calls.erase("cudaEventCreateWithFlags");  // there have to be more where the watch is late
    EXPECT_EQ(calls, (std::map<std::string, int>{
                         {"ncclAllReduce", 100}, {"cudaEventRecord", 100}, {"cudaStreamSynchronize", 2}}));
    world.barrier();
  });
}

// The fake reports a second thread.
TEST_F(FakeNcclTest, TheWatchStaysOutWhileACallIsMade) {
  nccl.answers_slowly = true;
  run_ranks(2, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(8, 1.0F);
    for (int i = 0; i < 200; ++i)
      static_cast<void>(world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::max, {.stream = stream}));
    Stream(stream).synchronize();
  });
  nccl.answers_slowly = false;
}

TEST_F(FakeNcclTest, WhatNcclLaunchesSoonIsAwaitedWithoutANap) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "instrumented, a launch takes longer than callers spin";
#endif
  run_ranks(2, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(8, 1.0F);
    auto const naps = [] {
      rusage usage{};
      getrusage(RUSAGE_THREAD, &usage);
      return usage.ru_nvcsw;
    };
    auto const before = naps();
    for (int i = 0; i < 200; ++i)
      static_cast<void>(world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::max, {.stream = stream}));
    EXPECT_LT(naps() - before, 200);  // now and then another thread has a lock
    Stream(stream).synchronize();
  });
}

TEST_F(FakeNcclTest, WorksOrderStreamsAndCallsKeepTheirOrderOnAny) {
  run_ranks(2, [&](Communicator& world) {
    Stream const communication = gpu.make_stream(true);
    Stream const other = gpu.make_stream();
    Stream compute = gpu.make_stream();
    std::vector<float> values(1000, 1.0F);
    float seen = 0;
    auto const before = gpu.host_waits_here();
    gpu.hold(communication);
    Work const first = world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = communication});
    Work const second = world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = other});
    second.wait_on(compute);
    compute.enqueue([&] { seen = values[999]; });
    EXPECT_FALSE(first.wait_for(std::chrono::milliseconds(5)));
    EXPECT_GT(gpu.host_waits_here(), before);  // that one asked
    gpu.release(communication);
    compute.synchronize();
    EXPECT_EQ(seen, 4.0F);
    EXPECT_TRUE(second.test());
  });
}

TEST_F(FakeNcclTest, AGroupIsOneLaunch) {
  run_ranks(3, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> a(10, 1.0F);
    std::vector<float> b(7, 2.0F);
    std::vector<float> to(5, static_cast<float>(world.rank()));
    std::vector<float> from(5);
    Group group(world, {.stream = stream});
    Work const one = world.all_reduce(on_gpu(a), on_gpu(a), ReduceOp::avg);
    world.all_reduce(on_gpu(b), on_gpu(b), Reduction::premul_sum(world.rank() + 1));
    world.send(on_gpu(to), (world.rank() + 1) % 3);
    world.recv(on_gpu(from), (world.rank() + 2) % 3);
    EXPECT_THROW(one.wait(), Error);
    EXPECT_EQ(gpu.count_here("ncclAllReduce"), 0U);
    std::vector<float> host(1);
    EXPECT_THROW(world.broadcast(std::span(host), 0), Error);  // of another device
    Work const all = group.end();
    all.wait();
    EXPECT_TRUE(one.test());
    EXPECT_EQ(a, std::vector<float>(10, 1.0F));
    EXPECT_EQ(b, std::vector<float>(7, 12.0F));
    EXPECT_EQ(from, std::vector<float>(5, static_cast<float>((world.rank() + 2) % 3)));
    for (auto const& call : gpu.calls()) {
      bool const of_the_group = call.name == "ncclAllReduce" || call.name == "ncclSend";
      EXPECT_GE(call.group_depth, of_the_group ? 1 : 0);
    }
    Group empty(world, {.stream = stream});
    world.barrier();
    empty.end().wait();
  });
}

TEST_F(FakeNcclTest, WhatNcclCannotDoIsNamedAndNothingIsSent) {
  run_ranks(2, [&](Communicator& world) {
    std::vector<std::int32_t> values(8, 3);
    BufferView const view(values.data(), 8, DataType::i32, kGpu);
    auto const refused = [&](std::vector<std::string> const& words, auto const& body, ErrorCode code) {
      try {
        body();
        ADD_FAILURE() << "not refused: " << words.front();
      } catch (Error const& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        for (auto const& word : words)
          EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      }
    };
    auto const unsupported = ErrorCode::unsupported;
    refused(
        {"bxor", "i32", "host memory"}, [&] { world.all_reduce(view, view, ReduceOp::bxor); }, unsupported);
    refused(
        {"scan", "host memory"}, [&] { world.scan(view, view, ReduceOp::sum); }, unsupported);
    BufferView const complex(values.data(), 4, DataType::c64, kGpu);
    refused(
        {"prod", "c64"}, [&] { world.all_reduce(complex, complex, ReduceOp::prod); }, unsupported);
    BufferView const small(values.data(), 4, DataType::i16, kGpu);
    refused(
        {"sum", "i16", "i32"}, [&] { world.reduce(small, small, ReduceOp::sum, 0); }, unsupported);
    BufferView const host(values.data() + 4, 4, DataType::i32);
    auto const mistake = ErrorCode::invalid_argument;
    refused(
        {"cuda:0", "cpu"}, [&] { world.all_reduce(view.slice(0, 4), host, ReduceOp::sum); }, mistake);
    Stream const cpu = Stream::cpu();
    refused(
        {"cuda:0", "make_stream"}, [&] { world.all_reduce(view, view, ReduceOp::sum, {.stream = cpu}); }, mistake);
    BufferView const elsewhere(values.data(), 8, DataType::i32, {DeviceType::cuda, 1});
    refused(
        {"cuda:1", "cuda:0"}, [&] { world.all_reduce(elsewhere, elsewhere, ReduceOp::sum); }, mistake);
    EXPECT_EQ(gpu.count_here("ncclAllReduce"), 0U);
    world.all_reduce(view, view, ReduceOp::sum);
    EXPECT_EQ(values[0], 6);
    // Complex sums and truth values go as NCCL can take them.
    world.all_reduce(complex, complex, ReduceOp::avg);
    EXPECT_EQ(gpu.count_here("ncclAllReduce"), 2U);
  });
  CommunicatorOptions options;
  options.reproducibility = Reproducibility::bitwise;
  run_ranks(
      2,
      [&](Communicator& world) {
        std::vector<float> values(4, 1.0F);
        EXPECT_THROW(world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum), Error);
        std::vector<std::int32_t> whole(4, world.rank());
        BufferView const view(whole.data(), 4, DataType::i32, kGpu);
        world.all_reduce(view, view, ReduceOp::max);
        EXPECT_EQ(whole[0], 1);
      },
      options);
}

TEST_F(FakeNcclTest, SymmetricMemoryIsAWindowWhereNcclGivesOne) {
  for (bool const with_windows : {true, false}) {
    nccl.without_windows = !with_windows;
    gpu.forget_calls();
    run_ranks(2, [&](Communicator& world) {
      {
        Buffer const buffer = world.allocate(1000, DataType::f32, kGpu);
        EXPECT_EQ(buffer.view().device, kGpu);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0U);
        EXPECT_EQ(static_cast<float*>(buffer.data())[999], 0.0F);
        static_cast<float*>(buffer.data())[0] = 1;
        world.all_reduce(buffer.view(), buffer.view(), ReduceOp::sum);
        EXPECT_EQ(static_cast<float*>(buffer.data())[0], 2.0F);
        auto const why = DeviceAccess::backend(world)->why_not_symmetric();
        EXPECT_EQ(why.empty(), with_windows) << why;
      }
      EXPECT_EQ(gpu.count_here("ncclCommWindowDeregister"), with_windows ? 1U : 0U);
      EXPECT_EQ(gpu.count_here("ncclMemFree"), 1U);
    });
  }
  // One rank has no more memory: all are told, and go on.
  nccl.without_windows = false;
  run_ranks(2, [&](Communicator& world) {
    world.barrier();
    if (world.rank() == 0) nccl.fail_next("ncclMemAlloc", ncclUnhandledCudaError);
    world.barrier();
    try {
      static_cast<void>(world.allocate(1000, DataType::f32, kGpu));
      ADD_FAILURE();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    }
    Buffer const buffer = world.allocate(1000, DataType::f32, kGpu);
  });
}

TEST_F(FakeNcclTest, SplitMakesConnectedCommunicatorsByNcclsOwnSplit) {
  run_ranks(4, [&](Communicator& world) {
    auto half = world.split(world.rank() == 3 ? Communicator::kNoColor : world.rank() % 2, -world.rank());
    EXPECT_EQ(gpu.count_here("ncclCommSplit"), 1U);
    if (!half) return;
    std::vector<float> values(3, static_cast<float>(world.rank()));
    half->broadcast(on_gpu(values), 0);
    EXPECT_EQ(values[0], world.rank() == 1 ? 1.0F : 2.0F);  // ranked by key: the last first
    EXPECT_EQ(gpu.count_here("ncclCommInitRankConfig"), 1U);
  });
}

TEST_F(FakeNcclTest, CapturedCallsAskTheGpuNothingAndRunWithTheGraph) {
  run_ranks(1, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    Stream const side = gpu.make_stream(true);
    std::vector<float> values(4, 1.0F);
    std::vector<float> more(4, 1.0F);
    world.all_reduce(on_gpu(values), on_gpu(values), Reduction::premul_sum(2), {.stream = stream}).wait();
    gpu.begin_capture(stream);
    auto const before = gpu.host_waits_here();
    Event fork;
    fork.record(stream);
    fork.wait_on(side);
    Work const first = world.all_reduce(on_gpu(values), on_gpu(values), Reduction::premul_sum(2), {.stream = stream});
    Work const second = world.all_reduce(on_gpu(more), on_gpu(more), Reduction::premul_sum(3), {.stream = side});
    second.wait_on(stream);
    first.wait();  // nothing to wait for
    EXPECT_TRUE(second.test());
    EXPECT_EQ(gpu.host_waits_here(), before);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // nor does the watching thread break the capture
    auto const graph = gpu.end_capture(stream);
    EXPECT_EQ(values[0], 2.0F);
    for (int launch = 0; launch < 2; ++launch) {
      gpu.launch(graph, stream);
      Stream(stream).synchronize();
    }
    EXPECT_EQ(values[0], 8.0F);
    EXPECT_EQ(more[0], 9.0F);
    world.all_reduce(on_gpu(values), on_gpu(values), Reduction::premul_sum(2));
    EXPECT_EQ(values[0], 16.0F);
  });
}

TEST_F(FakeNcclTest, ACapturedGroupIsCompleteForTheHost) {
  run_ranks(1, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    std::vector<float> more(4, 1.0F);
    gpu.begin_capture(stream);
    auto const before = gpu.host_waits_here();
    Group group(world, {.stream = stream});
    Work const one = world.all_reduce(on_gpu(values), on_gpu(values), Reduction::premul_sum(2));
    world.all_reduce(on_gpu(more), on_gpu(more), Reduction::premul_sum(3));
    Work const all = group.end();
    EXPECT_TRUE(all.wait_for(std::chrono::seconds(10)));
    EXPECT_TRUE(one.test());
    all.wait_on(stream);  // a dependence of the graph all the same
    EXPECT_EQ(gpu.host_waits_here(), before);
    auto const graph = gpu.end_capture(stream);
    gpu.launch(graph, stream);
    Stream(stream).synchronize();
    EXPECT_EQ(values[0], 2.0F);
    EXPECT_EQ(more[0], 3.0F);
  });
}

}  // namespace
}  // namespace weft::test
