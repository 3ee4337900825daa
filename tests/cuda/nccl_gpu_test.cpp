// Collectives through the real NCCL. Ranks may share a GPU, each on a "host" of its own as NCCL sees it: results only.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cuda/device_cases.hpp"
#include "harness/ranks.hpp"
#include "weft/cuda.hpp"

namespace weft::test {
namespace {

/// Asked in a process of its own: ranks cannot be forked from one that has used CUDA.
int count_gpus() {
  auto const exits = run_forked(1, [](int) { return cuda::device_count(); });
  return exits.front().code;
}

class NcclOnGpu : public ::testing::TestWithParam<int> {};

TEST_P(NcclOnGpu, EveryCallGivesWhatItGivesOnTheHost) {
  int const gpus = count_gpus();
  if (gpus <= 0) GTEST_SKIP() << "no CUDA device: cudaGetDeviceCount() finds none here";
  expect_all_succeeded(run_forked_ranks(GetParam(), [&](Communicator& world) {
    setenv("NCCL_HOSTID", ("weft-test-" + std::to_string(world.rank())).c_str(), 1);
    Device const device{DeviceType::cuda, world.rank() % gpus};
    world.connect(device);
    expect_as_on_host(world, device);
    return 0;
  }));
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclOnGpu, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace weft::test
