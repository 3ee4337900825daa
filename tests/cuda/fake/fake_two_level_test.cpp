// Device memory of ranks on several hosts: NCCL inside, host memory between. Ranks are threads, so hosts are by name.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/cases/attempt.hpp"
#include "collectives/device_access.hpp"
#include "collectives/two_level/two_level_factory.hpp"
#include "cuda/device_cases.hpp"
#include "cuda/fake/on_fake_nccl.hpp"
#include "cuda/fake/random_cases.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"
#include "weft/group.hpp"

namespace weft::test {
namespace {

class FakeTwoLevelTest : public OnFakeNccl {
 protected:
  /// A rank for each letter, on the host of that name; no call is too small for two levels.
  void run(std::string const& hosts, std::size_t chunk_bytes, std::function<void(Communicator&)> const& body,
           CommunicatorOptions const& options = {}, bool spans = false) {
    run_thread_ranks(
        static_cast<int>(hosts.size()),
        [&](Communicator& world) {
          auto const factory = two_level::factory({.libraries = FakeNccl::libraries(),
                                                   .host = hosts.substr(static_cast<std::size_t>(world.rank()), 1),
                                                   .spans = spans,
                                                   .chunk_bytes = chunk_bytes,
                                                   .flat_bytes = 0});
          DeviceAccess::connect(world, *factory);
          body(world);
        },
        options);
  }

  static BufferView on_gpu(std::vector<float>& values) { return {values.data(), values.size(), DataType::f32, kGpu}; }
};

/// Whether results are the reference's but for the order of additions. NCCL rounds scales to the data type, takes truth
/// values that are 0 or 1, and 16-bit partial results round once more.
bool is_near_the_reference(Case const& one) {
  if (!reduces(one.kind)) return true;
  if (one.dtype == DataType::boolean) return false;
  if (one.op == ReduceOp::premul_sum) return one.dtype == DataType::f32 || one.dtype == DataType::f64;
  bool const is_short = is_floating_point(one.dtype) && size_of(one.dtype) == 2;
  if (!is_short || one.op == ReduceOp::min || one.op == ReduceOp::max) return true;
  return (one.op == ReduceOp::sum || one.op == ReduceOp::avg) && one.values == Values::whole;
}

TEST_F(FakeTwoLevelTest, EveryCallGivesTheSerialResultHoweverRanksArePlaced) {
  for (std::string const hosts : {"aaaa", "aabb", "abab", "abba", "abcd", "aab", "aabbcc"}) {
    for (std::size_t const chunk : {std::size_t{2048}, std::size_t{1} << 16U}) {
      SCOPED_TRACE(hosts);
      run(hosts, chunk, [&](Communicator& world) {
        run_cases(gpu, world, {90 + hosts.size() + chunk, 100, is_near_the_reference, true});
      });
    }
  }
}

TEST_F(FakeTwoLevelTest, CallsGiveWhatTheyGiveOnTheHost) {
  for (std::string const hosts : {"aabb", "abab", "aab"}) {
    SCOPED_TRACE(hosts);
    run(hosts, 4096, [](Communicator& world) { expect_as_on_host(world, kGpu); });
  }
}

TEST_F(FakeTwoLevelTest, OnlyTheOwnShareCrossesAndNobodyWaits) {
  constexpr std::size_t kCount = 10007;
  run("aabb", 4096, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    std::vector<float> values(kCount, 1.0F);
    auto const before = gpu.host_waits_here();
    Work const work = world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream});
    EXPECT_EQ(gpu.host_waits_here(), before);
    std::size_t copied = 0;
    for (auto const& call : gpu.calls()) {
      if (call.thread == std::this_thread::get_id() && call.name == "cudaMemcpyAsync") copied += call.bytes;
    }
    EXPECT_NEAR(static_cast<double>(copied), 2 * kCount * sizeof(float) / 2, 8);  // out and in
    EXPECT_EQ(gpu.count_here("ncclReduceScatter"), 4U);  // of 2 · 1024 elements each; then a remainder
    EXPECT_EQ(gpu.count_here("ncclAllGather"), 4U);
    work.wait();
    EXPECT_EQ(values, std::vector<float>(kCount, 4.0F));
  });
}

TEST_F(FakeTwoLevelTest, SmallCallsAndUnequalHostsGoThroughHostMemoryWhole) {
  for (std::string const hosts : {"aab", "abc"}) {
    run(hosts, 4096, [&](Communicator& world) {
      std::vector<float> values(5000, 1.0F);
      world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum);
      EXPECT_EQ(values[0], 3.0F);
    });
  }
  run_thread_ranks(4, [&](Communicator& world) {
    auto const factory = two_level::factory(
        {.libraries = FakeNccl::libraries(), .host = world.rank() < 2 ? "a" : "b", .flat_bytes = 4096});
    DeviceAccess::connect(world, *factory);
    std::vector<float> values(1024, 1.0F);
    world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum);
    EXPECT_EQ(gpu.count("ncclReduceScatter"), 0U);
    world.barrier();
    std::vector<float> more(1025, 1.0F);
    world.all_reduce(on_gpu(more), on_gpu(more), ReduceOp::sum);
    EXPECT_GT(gpu.count("ncclReduce"), 0U);
    EXPECT_EQ(more, std::vector<float>(1025, 4.0F));
  });
}

TEST_F(FakeTwoLevelTest, WhereNcclSpansTheHostsItDoesAllOfIt) {
  run(
      "aabb", 4096, [](Communicator& world) { expect_as_on_host(world, kGpu); }, {}, true);
  run(
      "aabc", 4096,
      [&](Communicator& world) {
        run_cases(gpu, world, {4711, 100, is_near_the_reference, true});
      },
      {}, true);
  gpu.forget_calls();
  run(
      "abcd", 4096,
      [&](Communicator& world) {
        std::vector<float> values(10000, 1.0F);
        world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum);
        EXPECT_EQ(values, std::vector<float>(10000, 4.0F));
        EXPECT_EQ(gpu.count_here("ncclAllReduce"), 1U);
        EXPECT_EQ(gpu.count_here("cudaMemcpyAsync"), 0U);
        world.scan(on_gpu(values), on_gpu(values), ReduceOp::sum);  // NCCL has none
        EXPECT_EQ(values[0], 4.0F * static_cast<float>(world.rank() + 1));
      },
      {}, true);
}

TEST_F(FakeTwoLevelTest, BitwiseReproducibleReductionsAreWhatTheHostGives) {
  run("aabb", 4096,
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

TEST_F(FakeTwoLevelTest, PartsOfTheRanksAskAnewWhoIsWhere) {
  run("aabb", 4096, [&](Communicator& world) {
    auto host = world.split(world.rank() / 2);
    auto place = world.split(world.rank() % 2);
    std::vector<float> values(5000, 1.0F);
    world.barrier();
    if (world.rank() == 0) gpu.forget_calls();
    world.barrier();
    host->all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum);
    EXPECT_EQ(values[0], 2.0F);
    EXPECT_EQ(gpu.count_here("ncclAllReduce"), 1U);  // of one host
    place->all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum);
    EXPECT_EQ(values[4999], 4.0F);
    EXPECT_GT(gpu.count_here("cudaMemcpyAsync"), 0U);
  });
}

}  // namespace
}  // namespace weft::test
