// Fused streams give, bit for bit, what the same calls give by themselves, and merge where they may.
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/planned_calls.hpp"
#include "harness/ranks.hpp"
#include "runtime/stream_impl.hpp"

namespace weft::test {
namespace {

void fuse_and_compare(int ranks, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed);
  run_thread_ranks(ranks, [&](Communicator& world) {
    Plan plan(seed);
    auto const fused = Stream::cpu();
    auto const other = Stream::cpu();
    world.fuse(fused, 100'000);
    for (int i = 0; i < kPlans; ++i) {
      auto const calls = plan.calls(ranks);
      auto const bytes = arena_bytes(calls, ranks);
      auto const symmetric = plan.coin();
      auto a = symmetric ? world.allocate(bytes, DataType::u8) : Buffer::host(bytes, DataType::u8);
      auto b = Buffer::host(bytes, DataType::u8);
      std::memset(a.view().data, 7, bytes);
      std::memset(b.view().data, 7, bytes);
      auto const works = make_calls(world, calls, static_cast<std::byte*>(a.view().data), seed, {.stream = fused});
      if (plan.coin()) world.barrier({.stream = other});
      make_calls(world, calls, static_cast<std::byte*>(b.view().data), seed, {});
      for (auto const& work : works) work.wait();
      ASSERT_EQ(std::memcmp(a.view().data, b.view().data, bytes), 0) << "case " << i;
    }
  });
}

TEST(Fusion, GivesWhatSingleCallsGive) {
  std::uint64_t seed = 7;
  for (int const ranks : {1, 2, 3, 4}) fuse_and_compare(ranks, seed++);
}

TEST(Fusion, MergesUntilSomebodyLooks) {
  run_thread_ranks(2, [](Communicator& world) {
    auto stream = Stream::cpu();
    world.fuse(stream, 64 << 10);
    std::vector<std::vector<float>> tensors(12, std::vector<float>(1000, 1.0F));
    std::vector<Work> works;
    auto const reduce = [&](std::vector<float>& tensor) {
      BufferView const view{tensor.data(), tensor.size(), DataType::f32};
      works.push_back(world.all_reduce(view, view, ReduceOp::sum, {.stream = stream}));
    };
    for (auto& tensor : tensors) reduce(tensor);
    works.front().wait();
    for (auto const& work : works) EXPECT_TRUE(work.test()) << "one flat transfer completes all";
    EXPECT_EQ(works.front().timings().started, works.back().timings().started);

    works.clear();
    for (int i = 0; i < 3; ++i) reduce(tensors[0]);  // each needs the one before
    works.back().wait();
    EXPECT_NE(works[0].timings().started, works[1].timings().started);
    EXPECT_EQ(tensors[0][999], 16.0F);
    EXPECT_EQ(tensors[11][0], 2.0F);

    works.clear();
    reduce(tensors[1]);
    float seen = 0;
    stream.enqueue([&] { seen = tensors[1][5]; });  // comes after the call before it
    stream.synchronize();
    EXPECT_EQ(seen, 4.0F);

    works.clear();
    for (auto& tensor : tensors) reduce(tensor);
    world.fuse(stream, 0);
    reduce(tensors[2]);
    works.back().wait();
    EXPECT_EQ(tensors[2][0], 8.0F);
  });
}

/// The number of the call that errors name is that of calls which another thread may launch meanwhile.
TEST(Fusion, ABadCallWhileAnotherThreadWaits) {
  run_thread_ranks(2, [](Communicator& world) {
    auto const stream = Stream::cpu();
    world.fuse(stream);
    std::vector<float> values(100, 1.0F);
    BufferView const all{values.data(), values.size(), DataType::f32};
    for (int i = 0; i < 20; ++i) {
      auto const work = world.all_reduce(all, all, ReduceOp::max, {.stream = stream});
      std::thread waiter([&] { work.wait(); });
      EXPECT_THROW(world.broadcast(all, 7), Error);
      waiter.join();
    }
  });
}

TEST(Fusion, LaunchesBeforeItsCommunicatorEnds) {
  run_thread_ranks(2, [](Communicator& world) {
    auto const stream = Stream::cpu();
    float value = 1;
    BufferView const one{&value, 1, DataType::f32};
    Work work;
    {
      auto twin = world.duplicate(world.options());
      twin.fuse(stream);
      work = twin.all_reduce(one, one, ReduceOp::sum, {.stream = stream});
    }
    work.wait();
    EXPECT_EQ(value, 2);
  });
}

TEST(Fusion, TheLastCopyOfTheStreamLaunchesAndDrains) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> values(1000, 1.0F);
    {
      auto const stream = Stream::cpu();
      world.fuse(stream);
      for (std::size_t i = 0; i < 10; ++i) {
        BufferView const part{values.data() + i * 100, 100, DataType::f32};
        world.all_reduce(part, part, ReduceOp::sum, {.stream = stream});
      }
    }
    EXPECT_EQ(values, std::vector<float>(1000, 2.0F));
    auto const another = Stream::cpu();  // maybe at the same address, but not fused
    BufferView const part{values.data(), 100, DataType::f32};
    auto const first = world.all_reduce(part, part, ReduceOp::sum, {.stream = another});
    auto const second = world.all_reduce(part, part, ReduceOp::sum, {.stream = another});
    second.wait();
    EXPECT_NE(first.timings().started, second.timings().started);
  });
}

TEST(Fusion, WhatIsTooLargeToMergeIsNotHeldBack) {
  run_thread_ranks(3, [](Communicator& world) {
    auto const stream = Stream::cpu();
    world.fuse(stream);
    std::vector<float> values(100'000, 1.0F);
    auto const view = std::span(values);
    static_cast<void>(world.all_reduce(std::span<float const>(values), view, ReduceOp::sum, {.stream = stream}));
    std::promise<void> ran;  // behind the call in the queue, past what launches calls that are held back
    stream.impl().enqueue([&] { ran.set_value(); });
    ran.get_future().wait();
    EXPECT_EQ(values[99'999], 3.0F);
  });
}

TEST(Fusion, TwoCommunicatorsShareAStreamInOrder) {
  run_thread_ranks(2, [](Communicator& world) {
    auto stream = Stream::cpu();
    auto twin = world.duplicate(world.options());
    world.fuse(stream);
    twin.fuse(stream);
    std::vector<float> values(100, 1.0F);
    BufferView const all{values.data(), values.size(), DataType::f32};
    for (int i = 0; i < 4; ++i) {
      world.all_reduce(all, all, ReduceOp::sum, {.stream = stream});
      twin.all_reduce(all, all, ReduceOp::max, {.stream = stream});
    }
    stream.synchronize();
    EXPECT_EQ(values[99], 16.0F);
  });
}

}  // namespace
}  // namespace weft::test
