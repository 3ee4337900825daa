// Collectives of a real GPU's memory through host memory. Ranks share GPUs: results only.
#include <gtest/gtest.h>

#include "collectives/device_access.hpp"
#include "collectives/staged/staged_factory.hpp"
#include "cuda/device_cases.hpp"
#include "harness/ranks.hpp"
#include "runtime/cuda/cuda_functions.hpp"
#include "weft/cuda.hpp"

namespace weft::test {
namespace {

/// Asked in a process of its own: ranks cannot be forked from one that has used CUDA.
int count_gpus() {
  return run_forked(1, [](int) { return cuda::device_count(); }).front().code;
}

class StagedOnGpu : public ::testing::TestWithParam<int> {};

TEST_P(StagedOnGpu, EveryCallGivesWhatItGivesOnTheHost) {
  int const gpus = count_gpus();
  if (gpus <= 0) GTEST_SKIP() << "no CUDA device: cudaGetDeviceCount() finds none here";
  expect_all_succeeded(run_forked_ranks(GetParam(), [&](Communicator& world) {
    int const device = world.rank() % gpus;
    auto const factory =
        staged::factory({.cuda = &cuda::cuda_runtime(), .device = device, .chunk_bytes = std::size_t{4} << 10U});
    DeviceAccess::connect(world, *factory);
    expect_as_on_host(world, {DeviceType::cuda, device});
    return 0;
  }));
}

INSTANTIATE_TEST_SUITE_P(Ranks, StagedOnGpu, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace weft::test
