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

TEST(FakeStagedChoice, TheSettingDecides) {
  FakeGpu const gpu;
  Config config;
  config.nccl_library = "/nowhere/libnccl.so.2";
  config.device_backend = DeviceBackendKind::staged;
  testing::internal::CaptureStderr();
  run_thread_ranks(2, [](Communicator& world) { world.connect(kGpu); }, {.config = config});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");  // as told
  config.device_backend = DeviceBackendKind::nccl;
  auto const refused = [](Communicator& world) {
    try {
      world.connect(kGpu);
      ADD_FAILURE() << "there is no NCCL";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find("/nowhere/libnccl.so.2"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("WEFT_DEVICE_BACKEND=nccl"), std::string::npos) << error.what();
    }
  };
  run_thread_ranks(2, refused, {.config = config});
}

// Ranks whose settings differ hear of it, and can go on.
TEST(FakeStagedChoice, SettingsThatDifferAreRefusedOnAllRanks) {
  FakeGpu const gpu;
  run_thread_bootstraps(3, [](std::shared_ptr<Bootstrap> const& bootstrap) {
    Config config;
    config.nccl_library = "/nowhere/libnccl.so.2";
    if (bootstrap->rank() == 2) config.device_backend = DeviceBackendKind::staged;
    auto world = Communicator::create(bootstrap, {.config = config});
    try {
      world.connect(kGpu);
      ADD_FAILURE() << "settings differ";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_NE(std::string(error.what()).find("rank 2 has staged"), std::string::npos) << error.what();
    }
    world.barrier();
  });
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
