// Every operation of device memory through host memory: what it leaves, and how its copies are ordered.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "collectives/cases/attempt.hpp"
#include "collectives/device_access.hpp"
#include "collectives/staged/copies.hpp"
#include "collectives/staged/staged_factory.hpp"
#include "cuda/device_cases.hpp"
#include "cuda/fake/on_fake_gpu.hpp"
#include "cuda/fake/random_cases.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"
#include "weft/group.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
class FakeStagedTest : public OnFakeGpu {
 protected:
  /// Ranks that are connected through host memory, by chunks of so many bytes.
  void run(int ranks, std::size_t chunk_bytes, std::function<void(Communicator&)> const& body,
           CommunicatorOptions const& options = {}) {
    run_thread_ranks(
        ranks,
        [&](Communicator& world) {
          auto const factory = staged::factory({.cuda = &FakeGpu::functions(), .chunk_bytes = chunk_bytes});
          DeviceAccess::connect(world, *factory);
          body(world);
        },
        options);
  }

  static BufferView on_gpu(std::vector<float>& values) { return {values.data(), values.size(), DataType::f32, kGpu}; }
};

TEST_F(FakeStagedTest, EveryCallGivesTheSerialResult) {
  for (int const ranks : {1, 2, 3, 4}) {
    for (std::size_t const chunk : {std::size_t{2048}, std::size_t{1} << 16U}) {
      run(ranks, chunk, [&](Communicator& world) {
        run_cases(gpu, world, {70 + static_cast<std::uint64_t>(ranks) + chunk, 120});
      });
    }
  }
  EXPECT_GT(gpu.count("cudaMemcpy2DAsync"), 50U);
}

// Parts of 2 GiB and more; where they lie does not matter.
TEST_F(FakeStagedTest, RowsFurtherApartThanCudaTakesAreCopiesOfTheirOwn) {
  for (std::size_t const apart : {std::size_t{2147483647}, std::size_t{2147483648}}) {
    std::uintptr_t const to = 4096;
    std::uintptr_t const from = std::uintptr_t{1} << 40U;
    staged::Copies copies;
    for (std::size_t row = 0; row < 3; ++row) {
      staged::add_row(copies, reinterpret_cast<std::byte*>(to + row * 64),
                      reinterpret_cast<std::byte const*>(from + row * apart), 64);
    }
    EXPECT_EQ(copies.size(), apart <= 2147483647 ? 1U : 3U) << apart;
  }
}

TEST_F(FakeStagedTest, CallsGiveWhatTheyGiveOnTheHost) {
  for (int const ranks : {1, 3}) {
    run(ranks, 4096, [](Communicator& world) { expect_as_on_host(world, kGpu); });
  }
}

TEST_F(FakeStagedTest, BitwiseReproducibleReductionsAreWhatTheHostGives) {
  run(3, 4096,
      [&](Communicator& world) {
        std::vector<float> values(5000);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1F * static_cast<float>(i * (3 + world.rank()));
        auto host = values;
        world.all_reduce(std::span<float const>(host), std::span(host), ReduceOp::sum);
        world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum);
        EXPECT_EQ(values, host);
      },
      {.reproducibility = Reproducibility::bitwise});
}

TEST_F(FakeStagedTest, ACallIsAFixedNumberOfCopiesOnTwoStreamsAndNobodyWaits) {
  constexpr std::size_t kChunk = 4096;
  constexpr std::size_t kSteps = 10;
  run(2, kChunk, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(kSteps * kChunk / sizeof(float), 1.0F);
    auto const before = gpu.host_waits_here();
    Work const work = world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream});
    EXPECT_EQ(gpu.host_waits_here(), before);
    EXPECT_EQ(gpu.count_here("cudaMemcpyAsync"), 2 * kSteps);
    EXPECT_EQ(gpu.count_here("cuStreamWaitValue32"), kSteps);
    std::set<void const*> lanes;
    for (auto const& call : gpu.calls()) {
      if (call.thread != std::this_thread::get_id() || call.name != "cudaMemcpyAsync") continue;
      EXPECT_EQ(call.bytes, kChunk);
      lanes.insert(call.on);
    }
    EXPECT_EQ(lanes.size(), 2U);
    EXPECT_EQ(lanes.count(cuda::handle_of(stream)), 0U);
    work.wait();
    EXPECT_EQ(values, std::vector<float>(values.size(), 2.0F));
  });
}

// While the host waits for the first chunk of another rank, the next are copied out, up to the slots that there are.
TEST_F(FakeStagedTest, CopiesRunAheadOfTheHost) {
  constexpr std::size_t kChunk = 4096;
  run(2, kChunk, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(8 * kChunk / sizeof(float), 1.0F);
    world.barrier();
    if (world.rank() == 1) {
      while (gpu.copies_run() < 3) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(20ms);
      EXPECT_EQ(gpu.copies_run(), 3U);  // by rank 0, which alone has called
    }
    world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream}).wait();
    EXPECT_EQ(values, std::vector<float>(values.size(), 2.0F));
  });
  EXPECT_EQ(gpu.copies_run(), 2 * 2 * 8U);
}

TEST_F(FakeStagedTest, WorksOrderStreamsAndCallsKeepTheirOrderOnAny) {
  run(2, 4096, [&](Communicator& world) {
    Stream const communication = gpu.make_stream(true);
    Stream const other = gpu.make_stream();
    Stream compute = gpu.make_stream();
    std::vector<float> values(10000, 1.0F);
    float seen = 0;
    gpu.hold(communication);
    Work const first = world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = communication});
    Work const second = world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = other});
    second.wait_on(compute);
    compute.enqueue([&] { seen = values[9999]; });
    EXPECT_FALSE(first.wait_for(5ms));
    gpu.release(communication);
    compute.synchronize();
    EXPECT_EQ(seen, 4.0F);
    EXPECT_TRUE(second.test());
  });
}

TEST_F(FakeStagedTest, AGroupsMessagesGoTogetherWithItsCalls) {
  run(3, 4096, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(10, 1.0F);
    std::vector<float> to(5000, static_cast<float>(world.rank()));
    std::vector<float> from(5000);
    std::vector<float> mine(5000);
    Group group(world, {.stream = stream});
    Work const one = world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::avg);
    world.send(on_gpu(to), (world.rank() + 1) % 3);
    world.send(on_gpu(to), world.rank());
    world.recv(on_gpu(from), (world.rank() + 2) % 3);
    world.recv(on_gpu(mine), world.rank());
    group.end().wait();
    EXPECT_TRUE(one.test());
    EXPECT_EQ(values, std::vector<float>(10, 1.0F));
    EXPECT_EQ(from, std::vector<float>(5000, static_cast<float>((world.rank() + 2) % 3)));
    EXPECT_EQ(mine, to);
    Group empty(world, {.stream = stream});
    world.barrier();
    empty.end().wait();
  });
}

TEST_F(FakeStagedTest, CallsUnderCaptureAreRefusedAndNothingIsSent) {
  run(2, 4096, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    world.barrier();
    if (world.rank() == 0) {
      gpu.begin_capture(cuda::handle_of(stream), cudaStreamCaptureModeThreadLocal);
      try {
        world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream});
        ADD_FAILURE();
      } catch (Error const& error) {
        EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
      }
      EXPECT_TRUE(gpu.end_capture(stream)->tasks.empty());
    }
    world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream}).wait();
    EXPECT_EQ(values[0], 2.0F);
  });
}

TEST_F(FakeStagedTest, SplitAndMemoryOfTheCommunicator) {
  run(4, 4096, [&](Communicator& world) {
    {
      Buffer const buffer = world.allocate(1000, DataType::f32, kGpu);
      EXPECT_EQ(buffer.view().device, kGpu);
      auto* const values = static_cast<float*>(buffer.data());
      EXPECT_EQ(values[999], 0.0F);
      values[999] = 1;
      world.all_reduce(buffer.view(), buffer.view(), ReduceOp::sum);
      EXPECT_EQ(values[999], 4.0F);
      EXPECT_FALSE(DeviceAccess::backend(world)->why_not_symmetric().empty());
    }
    auto half = world.split(world.rank() == 3 ? Communicator::kNoColor : world.rank() % 2, -world.rank());
    if (!half) return;
    std::vector<float> values(3, static_cast<float>(world.rank()));
    half->broadcast(on_gpu(values), 0);
    EXPECT_EQ(values[0], world.rank() == 1 ? 1.0F : 2.0F);  // ranked by key: the last first
  });
}

}  // namespace
}  // namespace weft::test
