// Weft's public optimizer interface with tensors on a GPU, beside the CPU's; and steps inside CUDA graphs.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cuda/needs_gpu.hpp"
#include "weft/convert.hpp"
#include "weft/error.hpp"
#include "weft/grad_scaler.hpp"
#include "weft/gradients.hpp"
#include "weft/optimizer.hpp"

namespace weft::test {
namespace {

using CudaOptimizerTest = NeedsGpu;

std::vector<float> random_vector(std::size_t count, std::mt19937_64& random, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// f32 tensors of several sizes in GPU memory.
class Tensors {
 public:
  Tensors(std::vector<std::size_t> const& counts, Stream const& stream) : stream_(stream) {
    for (std::size_t const count : counts) memory_.push_back(cuda::allocate(count, DataType::f32));
  }
  [[nodiscard]] std::vector<BufferView> views() const {
    std::vector<BufferView> all;
    for (auto const& one : memory_) all.push_back(one.view());
    return all;
  }
  void set(std::vector<std::vector<float>>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      cuda::copy(memory_[i].view(), BufferView(std::span(values[i])), stream_);
    }
    stream_.synchronize();
  }
  [[nodiscard]] std::vector<std::vector<float>> get() {
    std::vector<std::vector<float>> values;
    for (auto const& one : memory_) {
      values.emplace_back(one.count());
      cuda::copy(BufferView(std::span(values.back())), one.view(), stream_);
    }
    stream_.synchronize();
    return values;
  }

 private:
  Stream stream_;
  std::vector<Buffer> memory_;
};

std::vector<std::vector<float>> draw(std::vector<std::size_t> const& counts, std::mt19937_64& random, float scale) {
  std::vector<std::vector<float>> all;
  for (std::size_t const count : counts) all.push_back(random_vector(count, random, scale));
  return all;
}

std::vector<std::size_t> const kCounts{5, 0, 1021, 70'000};

TEST_F(CudaOptimizerTest, AStepOfMixedPrecisionNeverWaitsAndIsTheCpus) {
  std::mt19937_64 random(4);
  Stream stream = cuda::make_stream();
  Device const device{DeviceType::cuda, 0};
  Tensors parameters(kCounts, stream);
  Tensors gradients(kCounts, stream);
  auto cpu_parameters = draw(kCounts, random, 1);
  parameters.set(cpu_parameters);
  std::vector<BufferView> cpu_views;
  for (auto& one : cpu_parameters) cpu_views.push_back(BufferView(std::span(one)));
  AdamWOptions const adamw{.lr = 1e-2};
  Optimizer optimizer(parameters.views(), adamw);
  Optimizer cpu(cpu_views, adamw);
  GradScaler scaler({.init_scale = 64}, device);
  GradScaler cpu_scaler({.init_scale = 64});
  auto const views = gradients.views();
  cuda::GradientList list(views);
  for (int step = 0; step < 5; ++step) {
    auto values = draw(kCounts, random, 100);
    if (step == 3) values[2][17] = INFINITY;
    gradients.set(values);
    list.measure({.inv_scale = scaler.inputs().inv_scale, .max_norm = 1, .found_inf = scaler.found_inf_view()}, stream);
    auto inputs = scaler.inputs();
    inputs.clip = list.clip();
    inputs.stream = &stream;
    optimizer.step(views, inputs);
    scaler.update(&stream);

    std::vector<BufferView> cpu_gradients;
    for (auto& one : values) cpu_gradients.push_back(BufferView(std::span(one)));
    auto const norm = gradient_norm(cpu_gradients, NormType::l2, cpu_scaler.inv_scale());
    EXPECT_EQ(list.read_norm().finite, norm.finite);
    if (norm.finite) {
      EXPECT_NEAR(list.read_norm().norm / norm.norm, 1, 1e-5);
    }
    float const clip = norm.finite ? clip_factor(norm.norm, 1) : 1;
    if (!norm.finite) cpu_scaler.found_inf() = 1;
    auto cpu_inputs = cpu_scaler.inputs();
    cpu_inputs.clip = &clip;
    cpu.step(cpu_gradients, cpu_inputs);
    cpu_scaler.update();
  }
  EXPECT_EQ(scaler.scale(), 32);
  EXPECT_EQ(scaler.state(), cpu_scaler.state());
  EXPECT_EQ(optimizer.step_count(), 4);
  EXPECT_THROW(static_cast<void>(scaler.found_inf()), Error);
  auto const got = parameters.get();
  for (std::size_t t = 0; t < kCounts.size(); ++t) {
    for (std::size_t i = 0; i < kCounts[t]; ++i) ASSERT_NEAR(got[t][i], cpu_parameters[t][i], 1e-5);
  }
}

/// One graph of a whole step, replayed with other gradients in the same places, against eager steps.
TEST_F(CudaOptimizerTest, AStepInAGraphIsBitEqualToTheEagerOne) {
  OptimizerOptions const all[] = {AdamWOptions{}, LambOptions{}, SgdOptions{.momentum = 0.9}};
  for (auto const& options : all) {
    for (auto const state : {StateType::f32, StateType::block8}) {
      std::mt19937_64 random(6);
      Stream stream = cuda::make_stream();
      cudaStream_t const handle = cuda::handle_of(stream);
      auto start = draw(kCounts, random, 1);
      Tensors eager_parameters(kCounts, stream), graph_parameters(kCounts, stream), gradients(kCounts, stream);
      eager_parameters.set(start);
      graph_parameters.set(start);
      Optimizer eager(eager_parameters.views(), options, {.state = state});
      Optimizer captured(graph_parameters.views(), options, {.state = state});
      auto const views = gradients.views();
      cuda::GradientList list(views);
      auto const step = [&](Optimizer& optimizer) {
        list.measure({.max_norm = 1}, stream);
        optimizer.step(views, {.clip = list.clip(), .stream = &stream});
      };
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      ASSERT_EQ(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal), cudaSuccess);
      step(captured);
      ASSERT_EQ(cudaStreamEndCapture(handle, &graph), cudaSuccess);
      ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
      for (int i = 0; i < 4; ++i) {
        auto values = draw(kCounts, random, 0.1F);
        gradients.set(values);
        step(eager);
        ASSERT_EQ(cudaGraphLaunch(exec, handle), cudaSuccess);
      }
      stream.synchronize();
      EXPECT_EQ(captured.step_count(), 4);
      EXPECT_EQ(eager_parameters.get(), graph_parameters.get()) << name_of(options);
      static_cast<void>(cudaGraphExecDestroy(exec));
      static_cast<void>(cudaGraphDestroy(graph));
    }
  }
}

TEST_F(CudaOptimizerTest, GradientFunctionsTakeTensorsOnAGpu) {
  Stream stream = cuda::make_stream();
  Tensors gradients({2, 1}, stream);
  std::vector<std::vector<float>> values{{3, 0}, {-4}};
  gradients.set(values);
  auto const views = gradients.views();
  EXPECT_DOUBLE_EQ(gradient_norm(views).norm, 5);
  EXPECT_DOUBLE_EQ(gradient_norm(views, NormType::inf).norm, 4);
  EXPECT_DOUBLE_EQ(clip_grad_norm(views, 2.5).norm, 5);
  EXPECT_NEAR(gradients.get()[1][0], -2, 1e-6);
  clip_grad_value(views, 1);
  EXPECT_EQ(gradients.get()[1][0], -1);
  float found_inf = 0;
  unscale_and_check(views, 0.5F, found_inf);
  EXPECT_EQ(gradients.get()[1][0], -0.5F);
  EXPECT_EQ(found_inf, 0);
  values[0][1] = NAN;
  gradients.set(values);
  unscale_and_check(views, 0.5F, found_inf);
  EXPECT_EQ(found_inf, 1);
  Buffer const narrow = cuda::allocate(1, DataType::bf16);
  convert(views[1], narrow.view());
  Buffer const wide = cuda::allocate(1, DataType::f32);
  cuda::CopyList copies(std::vector<BufferView>{narrow.view()}, std::vector<BufferView>{wide.view()});
  copies.run(stream, 0.5F);
  float back = 0;
  cuda::copy(BufferView(std::span(&back, 1)), wide.view(), stream);
  stream.synchronize();
  EXPECT_EQ(back, -1);
}

TEST(CudaOptimizerWithoutGpuTest, RefusesWhatItCannotUpdate) {
  float host = 0;
  int const missing = cuda::device_count();
  BufferView const absent(&host, 1, DataType::f32, {DeviceType::cuda, missing});
  BufferView const here(std::span(&host, 1));
  EXPECT_THROW(Optimizer({absent}, AdamWOptions{}), Error);
  EXPECT_THROW(Optimizer({here, absent}, AdamWOptions{}), Error);
  EXPECT_THROW(GradScaler({}, absent.device), Error);
  std::vector<BufferView> const cpu{here};
  std::vector<BufferView> const two{absent, here};
  EXPECT_THROW(cuda::GradientList{cpu}, Error);
  EXPECT_THROW(cuda::GradientList{two}, Error);
  EXPECT_THROW(cuda::CopyList(two, cpu), Error);
  EXPECT_THROW(static_cast<void>(gradient_norm(two)), Error);
}

}  // namespace
}  // namespace weft::test
