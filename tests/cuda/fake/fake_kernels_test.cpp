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

TEST(FakeKernels, StatesLieInTheCallersMemoryWithWhatIsThere) {
  FakeGpu gpu;
  Twins const parameters(gpu, 5003, 5);
  Twins const gradients(gpu, 5003, 6);
  Twins const moments(gpu, 5003, 7);
  Twins const squares(gpu, 5003, 8);
  for (std::size_t i = 0; i < 5003; ++i) {
    for (auto const& one : {squares.on_host.view(), squares.on_gpu.view()}) {
      auto& value = static_cast<float*>(one.data)[i];
      value *= value;
    }
  }
  std::vector<ParameterGroup> const on_host{{{parameters.on_host.view()}, AdamWOptions{}}};
  std::vector<ParameterGroup> const on_gpu{{{parameters.on_gpu.view()}, AdamWOptions{}}};
  Optimizer host(on_host, {{{}, {moments.on_host.view(), squares.on_host.view()}}}, {});
  Optimizer device(on_gpu, {{{}, {moments.on_gpu.view(), squares.on_gpu.view()}}}, {});
  for (auto* one : {&host, &device}) one->set_step_count(4);
  Stream const stream = gpu.make_stream();
  for (int step = 0; step < 2; ++step) {
    host.step({{gradients.on_host.view()}});
    device.step({{gradients.on_gpu.view()}}, {.stream = &stream});
  }
  Stream(stream).synchronize();
  parameters.expect_equal();
  moments.expect_equal();
  squares.expect_equal();
  EXPECT_EQ(device.state(0, 1), host.state(0, 1));
  EXPECT_EQ(device.step_count(), 6);
  EXPECT_THROW(Optimizer(on_gpu, {{{}, {moments.on_gpu.view(), squares.on_host.view()}}}, {}), Error);
  EXPECT_THROW(Optimizer(on_gpu, {{{}, {moments.on_gpu.view()}}}, {}), Error);
  EXPECT_THROW(Optimizer(on_gpu, {}, {}), Error);
}

TEST(FakeKernels, AListTakesOtherTensorsOfTheSameSizes) {
  FakeGpu gpu;
  Stream const stream = gpu.make_stream();
  Twins const small(gpu, 11, 9);
  Twins const large(gpu, 70001, 10);
  Twins const other(gpu, 70001, 11);
  cuda::GradientList list({{small.on_gpu.view(), large.on_gpu.view()}});
  list.measure({}, stream);
  EXPECT_NEAR(list.read_norm().norm, gradient_norm({{small.on_host.view(), large.on_host.view()}}).norm, 1e-4);
  auto const waits = gpu.host_waits_here();
  std::vector<BufferView> const moved{small.on_gpu.view(), other.on_gpu.view()};
  list.replace(moved, stream);
  auto const launches = gpu.count("cudaLaunchKernel");
  list.replace(moved, stream);  // they are there already
  EXPECT_EQ(gpu.count("cudaLaunchKernel"), launches);
  list.measure({}, stream);
  EXPECT_EQ(gpu.host_waits_here(), waits);
  EXPECT_NEAR(list.read_norm().norm, gradient_norm({{small.on_host.view(), other.on_host.view()}}).norm, 1e-4);
  Buffer const factor = gpu.allocate(1, DataType::f32);
  *static_cast<float*>(factor.data()) = 4;
  list.scale(static_cast<float const*>(factor.data()), stream);
  Stream(stream).synchronize();
  large.expect_equal();
  EXPECT_EQ(static_cast<float const*>(other.on_gpu.data())[70000],
            4 * static_cast<float const*>(other.on_host.data())[70000]);
  EXPECT_THROW(list.replace({{small.on_gpu.view()}}, stream), Error);
  EXPECT_THROW(list.replace({{small.on_gpu.view(), small.on_gpu.view()}}, stream), Error);
  EXPECT_THROW(list.replace({{small.on_gpu.view(), large.on_host.view()}}, stream), Error);
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
