// When collectives of device memory go through host memory without being told to: no NCCL, or ranks of several hosts.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "collectives/device_access.hpp"
#include "cuda/device_cases.hpp"
#include "cuda/fake/fake_gpu.hpp"
#include "harness/ranks.hpp"
#include "harness/shell.hpp"
#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

constexpr Device kGpu{DeviceType::cuda, 0};

TEST(FakeStagedChoice, WithoutNcclCallsGoThroughHostMemoryAndItIsSaidWhy) {
  FakeGpu const gpu;
  Config config;
  config.nccl_library = "/nowhere/libnccl.so.2";
  config.explain = true;
  testing::internal::CaptureStderr();
  run_thread_ranks(2,
                   [&](Communicator& world) {
                     std::vector<float> values(100, 1.0F);
                     BufferView const view(values.data(), values.size(), DataType::f32, kGpu);
                     world.all_reduce(view, view, ReduceOp::sum);
                     EXPECT_EQ(values[99], 2.0F);
                     // What NCCL has not.
                     world.scan(view, view, ReduceOp::sum);
                     EXPECT_EQ(values[0], 2.0F * static_cast<float>(world.rank() + 1));
                   },
                   {.config = config});
  auto const said = testing::internal::GetCapturedStderr();
  for (auto const* const word : {"cuda:0, 2 ranks", "pinned host memory, not NCCL", "rank 0", "/nowhere/libnccl.so.2"})
    EXPECT_NE(said.find(word), std::string::npos) << said;
}

#ifdef WEFT_MPIRUN
// Run by the next test under mpirun, each rank with a WEFT_HOST_ID.
TEST(FakeStagedChoice, DISABLED_ARankOfOneOfTheHosts) {
  FakeGpu const gpu;
  auto world = Communicator::create(mpi_bootstrap());
  world.connect(kGpu);
  expect_as_on_host(world, kGpu);
  EXPECT_EQ(gpu.violations(), std::vector<std::string>{});
  EXPECT_GT(gpu.count("cuStreamWaitValue32"), 100U);  // not NCCL
}

TEST(FakeStagedChoice, RanksOfSeveralHosts) {
  for (std::string const hosts : {"ab", "aabb", "aba"}) {
    std::string command = "timeout 90 " WEFT_MPIRUN " --oversubscribe";
    for (char const host : hosts) {
      command += std::string(command.find(" -np") == std::string::npos ? "" : " :") + " -np 1 -x WEFT_HOST_ID=" + host +
                 " -x GTEST_OUTPUT= " WEFT_THIS_TEST
                 " --gtest_also_run_disabled_tests --gtest_filter=*DISABLED_ARankOfOneOfTheHosts";
    }
    auto const outcome = run_shell(command);
    EXPECT_EQ(0, outcome.code) << hosts << ":\n" << outcome.output;
  }
}
#endif

}  // namespace
}  // namespace weft::test
