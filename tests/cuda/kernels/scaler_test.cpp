// A loss scale in a machine's memory beside the CPU's, and the whole step of mixed precision without waiting.

#include "optim/cuda/device_scaler.hpp"

#include <cmath>

#include "cuda/kernels/machines.hpp"
#include "optim/cuda/device_optimizer.hpp"
#include "weft/gradients.hpp"

namespace weft::test {
namespace {

template <typename Machine>
class DeviceScalerTest : public OnMachine<Machine> {};
TYPED_TEST_SUITE(DeviceScalerTest, Machines, MachineNames);

TYPED_TEST(DeviceScalerTest, ChangesAsTheCpusDoes) {
  auto const machine = this->make();
  for (int const hysteresis : {1, 3}) {
    GradScalerOptions const options{.init_scale = 1024, .growth_interval = 3, .hysteresis = hysteresis};
    GradScaler cpu(options);
    cuda::DeviceScaler<TypeParam> device(machine);
    kernels::LossScale state;
    state.hysteresis_left = hysteresis;
    kernels::set_scale(state, options.init_scale);
    device.write(state);
    std::mt19937_64 random(3);
    for (int step = 0; step < 200; ++step) {
      float const found = random() % 4 == 0 ? 1 : 0;
      cpu.found_inf() = found;
      machine.write(&device.memory()->found_inf, &found, sizeof found);
      cpu.update();
      device.update({options.growth_factor, options.backoff_factor, options.growth_interval, options.hysteresis, true},
                    nullptr);
      auto const now = device.read();
      ASSERT_EQ(now.scale, cpu.scale()) << step;
      ASSERT_EQ(now.inv_scale, cpu.inv_scale());
      ASSERT_EQ(now.found_inf, 0);
      ASSERT_EQ(now.growth_tracker, cpu.state().growth_tracker);
      ASSERT_EQ(now.hysteresis_left, cpu.state().hysteresis_left);
    }
  }
}

/// measure → step → update with everything in the machine's memory, beside the CPU's own step.
TYPED_TEST(DeviceScalerTest, AStepOfMixedPrecisionIsTheCpus) {
  auto const machine = this->make();
  std::mt19937_64 random(12);
  std::size_t const count = 5000;
  auto const start = as_stored(random_floats(count, random), DataType::bf16);
  GuardedTensor<TypeParam> parameter(machine, start, DataType::bf16);
  GuardedTensor<TypeParam> gradient(machine, std::vector<float>(count), DataType::bf16);
  Buffer const cpu_parameter = Buffer::host(count, DataType::bf16);
  Buffer const cpu_gradient = Buffer::host(count, DataType::bf16);
  kernels::convert(start.data(), DataType::f32, cpu_parameter.data(), DataType::bf16, count);
  AdamWOptions const adamw{.lr = 1e-2};
  OptimizerSettings const settings{.zero_gradients = true};
  cuda::DeviceOptimizer<TypeParam> device(machine, {{{parameter.view()}, adamw}}, settings);
  Optimizer cpu({cpu_parameter.view()}, adamw, settings);
  BufferView const view = gradient.view();
  cuda::MeasuredTensors<TypeParam> const list(machine, {&view, 1});
  GradScaler cpu_scaler({.init_scale = 64});
  cuda::DeviceScaler<TypeParam> scaler(machine);
  kernels::LossScale state;
  kernels::set_scale(state, 64);
  scaler.write(state);
  for (int step = 0; step < 6; ++step) {
    auto values = random_floats(count, random, 10);
    if (step == 2) values[4321] = INFINITY;
    gradient.set(values);
    kernels::convert(values.data(), DataType::f32, cpu_gradient.data(), DataType::bf16, count);
    auto* const memory = scaler.memory();
    list.measure({.factor = {1, &memory->inv_scale}, .max_norm = 1, .found_inf = &memory->found_inf}, nullptr);
    device.step({&view, 1},
                {.inv_scale = &memory->inv_scale, .clip = &list.whole()->clip, .found_inf = &memory->found_inf});
    scaler.update({2, 0.5, 2000, 1, true}, nullptr);

    BufferView const cpu_view = cpu_gradient.view();
    auto const norm = gradient_norm({&cpu_view, 1}, NormType::l2, cpu_scaler.inv_scale());
    float const clip = norm.finite ? clip_factor(norm.norm, 1) : 1;
    if (!norm.finite) cpu_scaler.found_inf() = 1;
    auto inputs = cpu_scaler.inputs();
    inputs.clip = &clip;
    cpu.step({&cpu_view, 1}, inputs);
    cpu_scaler.update();
  }
  EXPECT_EQ(scaler.read().scale, 32);
  EXPECT_EQ(cpu_scaler.scale(), 32);
  EXPECT_EQ(device.step_count(), 5);
  std::vector<float> expected(count);
  std::vector<float> got(count);
  kernels::convert(cpu.master(0).data, DataType::f32, expected.data(), DataType::f32, count);
  machine.read(got.data(), device.master(0).data, count * sizeof(float));
  EXPECT_TRUE(near(got, expected, 1e-5));
  EXPECT_EQ(gradient.get(), std::vector<float>(count));
}

}  // namespace
}  // namespace weft::test
