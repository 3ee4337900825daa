// Collectives of two hosts by name through the real NCCL and host memory. Ranks may share a GPU: results only.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "collectives/device_access.hpp"
#include "collectives/two_level/two_level_factory.hpp"
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

class TwoLevelOnGpu : public ::testing::TestWithParam<bool> {};

TEST_P(TwoLevelOnGpu, EveryCallGivesWhatItGivesOnTheHost) {
  int const gpus = count_gpus();
  if (gpus <= 0) GTEST_SKIP() << "no CUDA device: cudaGetDeviceCount() finds none here";
  expect_all_succeeded(run_forked_ranks(4, [&](Communicator& world) {
    setenv("NCCL_HOSTID", ("weft-test-" + std::to_string(world.rank())).c_str(), 1);
    int const device = world.rank() % gpus;
    auto const library = nccl::NcclLibrary::open(*world.options().config);
    auto const factory = two_level::factory({.libraries = {&cuda::cuda_runtime(), library, device},
                                             .host = world.rank() < 2 ? "a" : "b",
                                             .spans = GetParam(),
                                             .chunk_bytes = 4096,
                                             .flat_bytes = 0});
    DeviceAccess::connect(world, *factory);
    expect_as_on_host(world, {DeviceType::cuda, device});
    return 0;
  }));
}

// false: between hosts by host memory; true: all by NCCL.
INSTANTIATE_TEST_SUITE_P(NcclSpans, TwoLevelOnGpu, ::testing::Bool());

}  // namespace
}  // namespace weft::test
