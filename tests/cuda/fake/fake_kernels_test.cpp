// Kernels on a GPU in host memory, by the library's own optimizers.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "cuda/fake/fake_gpu.hpp"
#include "weft/convert.hpp"
#include "weft/error.hpp"
#include "weft/gradients.hpp"
#include "weft/optimizer.hpp"

namespace weft::test {
namespace {

/// The same numbers on the host and on the GPU.
struct Twins {
  Twins(FakeGpu const& gpu, std::size_t count, unsigned seed)
      : on_host(Buffer::host(count, DataType::f32)), on_gpu(gpu.allocate(count, DataType::f32)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> values;
    for (std::size_t i = 0; i < count; ++i) {
      static_cast<float*>(on_host.data())[i] = static_cast<float*>(on_gpu.data())[i] = values(random);
    }
  }
  void expect_equal() const {
    for (std::size_t i = 0; i < on_host.count(); ++i) {
      ASSERT_EQ(static_cast<float const*>(on_host.data())[i], static_cast<float const*>(on_gpu.data())[i]) << i;
    }
  }
  Buffer on_host, on_gpu;
};

TEST(FakeKernels, AnOptimizerOnTheGpuHasTheBitsOfTheCpus) {
  FakeGpu gpu;
  Twins const parameters(gpu, 20011, 1);
  Twins const gradients(gpu, 20011, 2);
  Stream const stream = gpu.make_stream();
  Optimizer host({parameters.on_host.view()}, AdamWOptions{});
  Optimizer device({parameters.on_gpu.view()}, AdamWOptions{});
  auto const waits = gpu.host_waits_here();
  for (int step = 0; step < 3; ++step) {
    host.step({{gradients.on_host.view()}});
    device.step({{gradients.on_gpu.view()}}, {.stream = &stream});
  }
  EXPECT_EQ(gpu.host_waits_here(), waits);
  EXPECT_GE(gpu.count("cudaLaunchKernel"), 6U);
  Stream(stream).synchronize();
  parameters.expect_equal();
  EXPECT_EQ(device.step_count(), 3);
}

TEST(FakeKernels, RunInTheOrderOfTheirStream) {
  FakeGpu gpu;
  Twins const values(gpu, 1000, 3);
  float const before = *static_cast<float const*>(values.on_gpu.data());
  Stream const stream = gpu.make_stream();
  cuda::GradientList list({{values.on_gpu.view()}});
  Buffer const factor = gpu.allocate(1, DataType::f32);
  *static_cast<float*>(factor.data()) = 2;
  gpu.hold(stream);
  list.scale(static_cast<float const*>(factor.data()), stream);
  EXPECT_EQ(*static_cast<float const*>(values.on_gpu.data()), before);
  gpu.release(stream);
  Stream(stream).synchronize();
  EXPECT_EQ(*static_cast<float const*>(values.on_gpu.data()), 2 * before);
}

TEST(FakeKernels, ValuesAreConvertedBetweenHostAndGpu) {
  FakeGpu gpu;
  Twins const values(gpu, 5001, 4);
  Buffer const narrow = Buffer::host(5001, DataType::bf16);
  Buffer const narrow_there = gpu.allocate(5001, DataType::bf16);
  Buffer const back = Buffer::host(5001, DataType::f32);
  convert(values.on_host.view(), narrow.view());
  convert(values.on_host.view(), narrow_there.view());  // up
  EXPECT_EQ(std::memcmp(narrow.data(), narrow_there.data(), narrow.view().bytes()), 0);
  convert(narrow_there.view(), back.view());  // and down
  convert(narrow.view(), values.on_host.view());
  EXPECT_EQ(std::memcmp(back.data(), values.on_host.data(), back.view().bytes()), 0);
  EXPECT_THROW(convert(values.on_host.view(), narrow_there.view().slice(0, 5000)), Error);
  EXPECT_THROW(convert(narrow_there.view().slice(0, 5000), back.view()), Error);
  EXPECT_THROW(convert(back.view(), gpu.allocate(5001, DataType::i32).view()), Error);
}

}  // namespace
}  // namespace weft::test
