// The optimizers of kernels/cuda, with their whole host side, against those of kernels/cpu and against double.

#include <cmath>
#include <limits>

#include "cuda/kernels/machines.hpp"
#include "optim/cuda/device_optimizer.hpp"
#include "optim/double_reference.hpp"
#include "weft/optimizer.hpp"

namespace weft::test {
namespace {

template <typename Machine>
class DeviceOptimizerTest : public OnMachine<Machine> {};
TYPED_TEST_SUITE(DeviceOptimizerTest, Machines, MachineNames);

std::vector<OptimizerOptions> all_options() {
  return {AdamWOptions{.lr = 3e-3, .weight_decay = 0.1},
          AdamWOptions{.lr = 3e-3, .amsgrad = true, .maximize = true},
          AdamOptions{.lr = 3e-3, .beta2 = 0.95, .weight_decay = 0.1},
          SgdOptions{.lr = 0.1},
          SgdOptions{.lr = 0.05, .momentum = 0.9, .dampening = 0.2, .weight_decay = 0.01},
          SgdOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true, .maximize = true},
          LambOptions{.lr = 1e-2, .weight_decay = 0.05},
          LionOptions{.lr = 1e-3, .weight_decay = 0.1},
          AdagradOptions{.lr = 0.05, .lr_decay = 0.01, .weight_decay = 0.1, .initial_accumulator_value = 0.1}};
}

struct Types {
  DataType parameter, gradient;
  bool masters;
};

constexpr Types kAllTypes[] = {{DataType::f32, DataType::f32, true},   {DataType::f32, DataType::bf16, true},
                               {DataType::bf16, DataType::bf16, true}, {DataType::bf16, DataType::f32, true},
                               {DataType::f16, DataType::f16, true},   {DataType::bf16, DataType::bf16, false},
                               {DataType::f16, DataType::f32, false}};

/// What a step may differ by: Lamb's norms are summed otherwise, packed states may round to the other side, and a
/// narrow parameter to its neighbour.
double tolerance(OptimizerOptions const& options, OptimizerSettings const& settings, Types const& types) {
  if (!types.masters) return types.parameter == DataType::bf16 ? 0.04 : 0.005;
  if (settings.state == StateType::block8) return std::holds_alternative<LambOptions>(options) ? 1e-2 : 1e-5;
  return 5e-6;
}

/// The same parameters under a device's optimizer and a CPU's.
template <typename Machine>
class Pair {
 public:
  Pair(Machine const& machine, std::vector<std::size_t> const& counts, std::vector<std::size_t> const& offsets,
       Types const& types, OptimizerOptions const& options, OptimizerSettings const& settings)
      : types_(types), tolerance_(tolerance(options, settings, types)) {
    std::vector<BufferView> device_views;
    std::vector<BufferView> cpu_views;
    cpu_parameters_.reserve(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) {
      auto const start = random_floats(counts[i], random_);
      parameters_.emplace_back(machine, start, types.parameter, offsets[i % offsets.size()]);
      gradients_.emplace_back(machine, std::vector<float>(counts[i]), types.gradient,
                              offsets[(i + 1) % offsets.size()]);
      cpu_parameters_.push_back(Buffer::host(counts[i], types.parameter));
      kernels::convert(start.data(), DataType::f32, cpu_parameters_.back().data(), types.parameter, counts[i]);
      device_views.push_back(parameters_.back().view());
      cpu_views.push_back(cpu_parameters_.back().view());
    }
    device_ = std::make_unique<cuda::DeviceOptimizer<Machine>>(
        machine, std::vector<ParameterGroup>{{device_views, options}}, settings);
    cpu_.emplace(cpu_views, options, settings);
  }

  [[nodiscard]] Optimizer::Impl& device() { return *device_; }
  [[nodiscard]] Optimizer& cpu() { return *cpu_; }
  [[nodiscard]] std::vector<GuardedTensor<Machine>>& gradients() { return gradients_; }

  /// New random gradients, the same on both; `wild` sprinkles what is not finite.
  void draw(bool wild) {
    cpu_gradients_.clear();
    for (auto& gradient : gradients_) {
      auto values = random_floats(gradient.view().count, random_, 0.1F);
      constexpr float kWild[] = {INFINITY, -INFINITY, NAN, 0.0F, -0.0F, 1e-40F};
      if (wild) {
        for (std::size_t i = 0; i < values.size(); i += 7) values[i] = kWild[i / 7 % 6];
      }
      gradient.set(values);
      cpu_gradients_.push_back(Buffer::host(values.size(), types_.gradient));
      kernels::convert(values.data(), DataType::f32, cpu_gradients_.back().data(), types_.gradient, values.size());
    }
  }
  [[nodiscard]] std::vector<BufferView> device_gradients() const {
    std::vector<BufferView> views;
    for (auto const& gradient : gradients_) views.push_back(gradient.view());
    return views;
  }
  [[nodiscard]] std::vector<BufferView> cpu_gradients() const {
    std::vector<BufferView> views;
    for (auto const& gradient : cpu_gradients_) views.push_back(gradient.view());
    return views;
  }
  void expect_equal(std::string const& where) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      std::vector<float> expected(cpu_parameters_[i].count());
      kernels::convert(cpu_parameters_[i].data(), types_.parameter, expected.data(), DataType::f32, expected.size());
      double const narrow = types_.parameter == DataType::f32 ? 0 : (types_.parameter == DataType::bf16 ? 8e-3 : 1e-3);
      ASSERT_TRUE(near(parameters_[i].get(), expected, std::max(tolerance_, narrow))) << where << ", tensor " << i;
      ASSERT_TRUE(parameters_[i].guards_hold()) << where << ", parameter " << i;
      ASSERT_TRUE(gradients_[i].guards_hold()) << where << ", gradient " << i;
      std::vector<float> zeroed(cpu_gradients_[i].count());
      kernels::convert(cpu_gradients_[i].data(), types_.gradient, zeroed.data(), DataType::f32, zeroed.size());
      ASSERT_TRUE(near(gradients_[i].get(), zeroed, 0)) << where << ", gradient " << i;
      for (std::size_t which = 0; which < cpu_->state_names(i).size(); ++which) {
        ASSERT_TRUE(near(device_->state(i, which), cpu_->state(i, which), std::min(tolerance_, 1e-2)))
            << where << ", state " << which << " of " << i;
      }
    }
  }

 private:
  std::mt19937_64 random_{17};
  Types types_;
  double tolerance_;
  std::vector<GuardedTensor<Machine>> parameters_, gradients_;
  std::vector<Buffer> cpu_parameters_, cpu_gradients_;
  std::unique_ptr<Optimizer::Impl> device_;
  std::optional<Optimizer> cpu_;
};

TYPED_TEST(DeviceOptimizerTest, FollowsTheCpuOptimizer) {
  std::vector<std::size_t> const counts{1, 0, 3, 1021, 4096, kernels::cuda::kChunk + 5};
  int which = 0;
  for (auto const& options : all_options()) {
    for (auto const& types : kAllTypes) {
      for (auto const state : {StateType::f32, StateType::block8}) {
        OptimizerSettings const settings{
            .master_weights = types.masters, .zero_gradients = which % 2 == 0, .state = state};
        std::vector<std::size_t> const offsets =
            which % 3 == 0 ? std::vector<std::size_t>{0} : std::vector<std::size_t>{1, 2, 3};
        Pair<TypeParam> pair(this->make(), counts, offsets, types, options, settings);
        for (int step = 0; step < 3; ++step) {
          pair.draw(false);
          pair.device().step(pair.device_gradients(), {});
          pair.cpu().step(pair.cpu_gradients());
        }
        pair.expect_equal(std::string(name_of(options)) + ", case " + std::to_string(which));
        if (this->HasFatalFailure()) return;
        EXPECT_EQ(pair.device().step_count(), 3);
        EXPECT_EQ(pair.device().state_bytes(), pair.cpu().state_bytes());
        ++which;
      }
    }
  }
}

TYPED_TEST(DeviceOptimizerTest, WhatIsNotFiniteSpreadsAsOnTheCpu) {
  for (auto const& options : all_options()) {
    if (std::holds_alternative<LambOptions>(options)) continue;  // spoils the whole tensor
    for (auto const state : {StateType::f32, StateType::block8}) {
      Types const types{DataType::f32, DataType::f32, true};
      Pair<TypeParam> pair(this->make(), {777}, {0}, types, options, {.state = state});
      pair.draw(true);
      pair.device().step(pair.device_gradients(), {});
      pair.cpu().step(pair.cpu_gradients());
      pair.expect_equal(name_of(options));
      if (this->HasFatalFailure()) return;
    }
  }
}

/// 40 steps beside the formulas in double.
TYPED_TEST(DeviceOptimizerTest, FollowsTheDoubleReference) {
  auto const machine = this->make();
  for (auto const& options : all_options()) {
    std::mt19937_64 random(7);
    auto const start = random_floats(517, random);
    GuardedTensor<TypeParam> parameter(machine, start, DataType::f32);
    GuardedTensor<TypeParam> gradient(machine, std::vector<float>(517), DataType::f32, 2);
    cuda::DeviceOptimizer<TypeParam> optimizer(machine, {{{parameter.view()}, options}}, {});
    DoubleReference reference(std::vector<double>(start.begin(), start.end()), options);
    for (int step = 0; step < 40; ++step) {
      auto const values = random_floats(517, random, 0.1F);
      gradient.set(values);
      BufferView const view = gradient.view();
      optimizer.step({&view, 1}, {});
      reference.step({values.begin(), values.end()});
    }
    auto const& exact = reference.parameters();
    ASSERT_TRUE(near(parameter.get(), std::vector<float>(exact.begin(), exact.end()), 8e-6)) << name_of(options);
  }
}

/// The fused step: loss scale, clip factor and limit, rate, number and overflow flag from the machine's memory.
TYPED_TEST(DeviceOptimizerTest, ReadsItsInputsFromDeviceMemory) {
  for (auto const& options : all_options()) {
    for (auto const state : {StateType::f32, StateType::block8}) {
      auto const machine = this->make();
      Types const types{DataType::bf16, DataType::bf16, true};
      Pair<TypeParam> pair(machine, {5, 1300}, {0, 1}, types, options, {.zero_gradients = true, .state = state});
      std::vector<float> host{0.01F, 1.0F / 64, 0.5F, 0};
      std::int64_t number = 3;
      Buffer const step_memory = machine.allocate(sizeof number);
      GuardedTensor<TypeParam> inputs(machine, host, DataType::f32);
      auto const* const at = static_cast<float const*>(inputs.view().data);
      for (int step = 0; step < 4; ++step) {
        host[3] = step == 1 ? 1 : 0;
        inputs.set(host);
        machine.write(step_memory.data(), &number, sizeof number);
        pair.draw(step == 1);
        pair.device().step(pair.device_gradients(), {.lr = at,
                                                     .step = static_cast<std::int64_t const*>(step_memory.data()),
                                                     .inv_scale = at + 1,
                                                     .clip = at + 2,
                                                     .clip_value = 0.0005F,
                                                     .found_inf = at + 3});
        pair.cpu().step(pair.cpu_gradients(), {.lr = &host[0],
                                               .step = &number,
                                               .inv_scale = &host[1],
                                               .clip = &host[2],
                                               .clip_value = 0.0005F,
                                               .found_inf = &host[3]});
        EXPECT_EQ(pair.device().step_count(), pair.cpu().step_count());
        EXPECT_EQ(cuda::download<std::int64_t>(machine, pair.device().step_memory()), pair.cpu().step_count());
        if (step != 1) number += 2;
        pair.expect_equal(std::string(name_of(options)) + ", step " + std::to_string(step));
        if (this->HasFatalFailure()) return;
      }
      EXPECT_EQ(pair.device().step_count(), 7);
    }
  }
}

/// 40 steps, some of them skipped, numbered by the machine's memory, beside the formulas in double.
TYPED_TEST(DeviceOptimizerTest, CountsByANumberInDeviceMemory) {
  auto const machine = this->make();
  for (auto const& options : all_options()) {
    std::mt19937_64 random(11);
    auto const start = random_floats(517, random);
    GuardedTensor<TypeParam> parameter(machine, start, DataType::f32);
    GuardedTensor<TypeParam> gradient(machine, std::vector<float>(517), DataType::f32, 2);
    GuardedTensor<TypeParam> found_inf(machine, {0}, DataType::f32);
    cuda::DeviceOptimizer<TypeParam> optimizer(machine, {{{parameter.view()}, options}}, {});
    DoubleReference reference(std::vector<double>(start.begin(), start.end()), options);
    std::int64_t number = std::holds_alternative<SgdOptions>(options) ? 1 : 6;
    Buffer const memory = machine.allocate(sizeof number);
    for (int step = 0; step < 40; ++step) {
      auto const values = random_floats(517, random, 0.1F);
      gradient.set(values);
      found_inf.set({step % 5 == 3 ? 1.0F : 0.0F});
      machine.write(memory.data(), &number, sizeof number);
      BufferView const view = gradient.view();
      optimizer.step({&view, 1}, {.step = static_cast<std::int64_t const*>(memory.data()),
                                  .found_inf = static_cast<float const*>(found_inf.view().data)});
      if (step % 5 == 3) continue;
      reference.set_steps(static_cast<int>(number) - 1);
      reference.step({values.begin(), values.end()});
      EXPECT_EQ(optimizer.step_count(), number);
      number += step % 7 == 0 ? 3 : 1;
    }
    auto const& exact = reference.parameters();
    ASSERT_TRUE(near(parameter.get(), std::vector<float>(exact.begin(), exact.end()), 8e-6)) << name_of(options);
  }
}

TYPED_TEST(DeviceOptimizerTest, UpdatesOneTensorAtATime) {
  for (auto const& options : all_options()) {
    Types const types{DataType::f32, DataType::f32, true};
    Pair<TypeParam> pair(this->make(), {40, 1, 3000}, {0}, types, options, {});
    for (int step = 0; step < 2; ++step) {
      pair.draw(false);
      pair.device().begin_step({});
      pair.cpu().begin_step();
      for (std::size_t const i : {2, 0, 1}) {
        pair.device().update(i, pair.device_gradients()[i]);
        pair.cpu().update(i, pair.cpu_gradients()[i]);
      }
    }
    pair.expect_equal(name_of(options));
  }
}

TYPED_TEST(DeviceOptimizerTest, LambOfATensorInTwoPartsIsThatOfTheWhole) {
  auto const machine = this->make();
  std::mt19937_64 random(9);
  auto const start = random_floats(1000, random);
  LambOptions const options{.lr = 0.01, .weight_decay = 0.1};
  GuardedTensor<TypeParam> whole(machine, start, DataType::f32);
  GuardedTensor<TypeParam> parts(machine, start, DataType::f32);
  cuda::DeviceOptimizer<TypeParam> one(machine, {{{whole.view()}, options}}, {});
  cuda::DeviceOptimizer<TypeParam> two(machine, {{{parts.view().slice(0, 300), parts.view().slice(300, 700)}, options}},
                                       {});
  for (int step = 0; step < 3; ++step) {
    GuardedTensor<TypeParam> gradient(machine, random_floats(1000, random), DataType::f32);
    BufferView const all = gradient.view();
    one.step({&all, 1}, {});
    two.begin_step({});
    auto const a = two.update_moments(0, all.slice(0, 300));
    auto const b = two.update_moments(1, all.slice(300, 700));
    for (std::size_t part : {0, 1}) two.apply(part, {a.parameter + b.parameter, a.direction + b.direction});
  }
  EXPECT_TRUE(near(parts.get(), whole.get(), 1e-6));
}

TYPED_TEST(DeviceOptimizerTest, NormsOfManyTensorsAreTakenToTheirPlacesAndBack) {
  constexpr std::size_t kTensors = 500;  // more than a launch moves
  auto const machine = this->make();
  std::mt19937_64 random(10);
  std::vector<GuardedTensor<TypeParam>> whole;
  std::vector<GuardedTensor<TypeParam>> parts;
  std::vector<BufferView> views, lamb, adam;
  std::vector<std::size_t> indices, places;
  for (std::size_t i = 0; i < kTensors; ++i) {
    auto const start = random_floats(10 + i % 7, random);
    whole.emplace_back(machine, start, DataType::f32);
    parts.emplace_back(machine, start, DataType::f32);
    views.push_back(whole.back().view());
    (i == 300 ? adam : lamb).push_back(parts.back().view());
    indices.push_back(i == 300 ? kTensors - 1 : i < 300 ? i : i - 1);
    places.push_back(kTensors - 1 - i);
  }
  LambOptions const options{.lr = 0.01, .weight_decay = 0.1};
  AdamWOptions const other{.lr = 0.01};
  cuda::DeviceOptimizer<TypeParam> one(machine, {{views, options}}, {});
  cuda::DeviceOptimizer<TypeParam> two(machine, {{lamb, options}, {adam, other}}, {});
  Buffer const norms = machine.allocate(kTensors * sizeof(kernels::LambNorms));
  auto* const all = static_cast<kernels::LambNorms*>(norms.data());
  for (int step = 0; step < 3; ++step) {
    std::vector<GuardedTensor<TypeParam>> memory;
    std::vector<BufferView> gradients;
    for (auto const& view : views) {
      memory.emplace_back(machine, random_floats(view.count, random), DataType::f32);
      gradients.push_back(memory.back().view());
    }
    one.step(gradients, {});
    two.begin_step({});
    two.update_moments(indices, gradients, {places, all});
    two.apply(indices, {places, all});
    machine.synchronize();
  }
  for (std::size_t i = 0; i < kTensors; ++i) {
    if (i != 300) {
      ASSERT_TRUE(near(parts[i].get(), whole[i].get(), 0)) << i;
    }
  }
  EXPECT_EQ(cuda::download<kernels::LambNorms>(machine, all + places[300]).parameter, 0);
  EXPECT_GT(cuda::download<kernels::LambNorms>(machine, all + places[301]).parameter, 0);
}

TYPED_TEST(DeviceOptimizerTest, MixesOptimizersAndManyGroups) {
  auto const machine = this->make();
  std::mt19937_64 random(3);
  std::vector<ParameterGroup> device_groups;
  std::vector<ParameterGroup> cpu_groups;
  std::vector<GuardedTensor<TypeParam>> parameters;
  std::vector<std::vector<float>> cpu_parameters;
  auto const options = all_options();
  for (std::size_t i = 0; i < 70; ++i) {
    auto const start = random_floats(10 + i, random);
    parameters.emplace_back(machine, start, DataType::f32);
    cpu_parameters.push_back(start);
    auto own = options[i % options.size()];
    set_lr(own, 1e-3 * static_cast<double>(i));
    device_groups.push_back({{parameters.back().view()}, own});
    cpu_groups.push_back({{BufferView(std::span(cpu_parameters.back()))}, own});
  }
  cuda::DeviceOptimizer<TypeParam> device(machine, device_groups, {});
  Optimizer cpu(cpu_groups, {});
  for (int step = 0; step < 3; ++step) {
    std::vector<GuardedTensor<TypeParam>> gradients;
    std::vector<std::vector<float>> cpu_gradients;
    std::vector<BufferView> views;
    std::vector<BufferView> cpu_views;
    for (std::size_t i = 0; i < 70; ++i) cpu_gradients.push_back(random_floats(10 + i, random, 0.1F));
    for (auto& one : cpu_gradients) {
      gradients.emplace_back(machine, one, DataType::f32);
      views.push_back(gradients.back().view());
      cpu_views.push_back(BufferView(std::span(one)));
    }
    device.step(views, {});
    cpu.step(cpu_views);
  }
  for (std::size_t i = 0; i < 70; ++i) ASSERT_TRUE(near(parameters[i].get(), cpu_parameters[i], 5e-6)) << i;
}

TYPED_TEST(DeviceOptimizerTest, ResumesFromItsStatesBitIdentically) {
  auto const machine = this->make();
  for (auto const state : {StateType::f32, StateType::block8}) {
    for (auto const& options : all_options()) {
      std::mt19937_64 random(2);
      auto const start = random_floats(700, random);
      GuardedTensor<TypeParam> parameter(machine, start, DataType::f32);
      GuardedTensor<TypeParam> resumed_parameter(machine, start, DataType::f32);
      OptimizerSettings const settings{.state = state};
      cuda::DeviceOptimizer<TypeParam> optimizer(machine, {{{parameter.view()}, options}}, settings);
      std::optional<cuda::DeviceOptimizer<TypeParam>> resumed;
      for (int step = 0; step < 4; ++step) {
        if (step == 2) {
          resumed_parameter.set(parameter.get());
          resumed.emplace(machine, std::vector<ParameterGroup>{{{resumed_parameter.view()}, options}}, settings);
          resumed->set_step_count(optimizer.step_count());
          for (std::size_t which = 0; which < state_names(options).size(); ++which) {
            resumed->set_state(0, which, optimizer.state(0, which));
          }
        }
        GuardedTensor<TypeParam> gradient(machine, random_floats(700, random), DataType::f32);
        BufferView const view = gradient.view();
        optimizer.step({&view, 1}, {});
        if (resumed) resumed->step({&view, 1}, {});
      }
      EXPECT_EQ(parameter.get(), resumed_parameter.get()) << name_of(options);
    }
  }
}

// What a step asks of the machine.

TEST(DeviceStepTest, IsOneLaunchForAllTensorsWithoutAllocationOrWaiting) {
  HostMachine const machine;
  std::vector<Buffer> memory;
  std::vector<BufferView> parameters;
  std::vector<BufferView> gradients;
  for (int i = 0; i < 1000; ++i) {
    memory.push_back(machine.allocate(4 * sizeof(float)));
    parameters.emplace_back(memory.back().data(), 3, DataType::f32, machine.device());
    memory.push_back(machine.allocate(4 * sizeof(float)));
    gradients.emplace_back(memory.back().data(), 3, DataType::f32, machine.device());
  }
  auto const launches_of_step = [&](Optimizer::Impl& optimizer) {
    auto const before = machine.counters();
    optimizer.step(gradients, {});
    EXPECT_EQ(machine.counters().allocations, before.allocations);
    EXPECT_EQ(machine.counters().waits, before.waits);
    return machine.counters().launches - before.launches;
  };
  cuda::DeviceOptimizer<HostMachine> adamw(machine, {{parameters, AdamWOptions{}}}, {});
  EXPECT_EQ(launches_of_step(adamw), 2 + 5) << "five tell where 1,000 gradients are";
  EXPECT_EQ(launches_of_step(adamw), 2) << "and none where they stay";
  std::swap(gradients[3], gradients[4]);
  EXPECT_EQ(launches_of_step(adamw), 2 + 1);
  cuda::DeviceOptimizer<HostMachine> lamb(machine, {{parameters, LambOptions{}}}, {});
  launches_of_step(lamb);
  EXPECT_EQ(launches_of_step(lamb), 4);
}

TEST(DeviceStepTest, AfterACaptureGradientsAreToldEveryTime) {
  HostMachine const machine;
  Buffer const memory = machine.allocate(100 * sizeof(float));
  BufferView const all(memory.data(), 100, DataType::f32, machine.device());
  BufferView const gradient = all.slice(50, 50);
  cuda::DeviceOptimizer<HostMachine> optimizer(machine, {{{all.slice(0, 50)}, AdamWOptions{}}}, {});
  auto const launches_of_step = [&] {
    int const before = machine.counters().launches;
    optimizer.step({&gradient, 1}, {});
    return machine.counters().launches - before;
  };
  EXPECT_EQ(launches_of_step(), 3);
  EXPECT_EQ(launches_of_step(), 2);
  machine.counters().capturing = true;
  EXPECT_EQ(launches_of_step(), 3) << "a graph must bring its own";
  machine.counters().capturing = false;
  EXPECT_EQ(launches_of_step(), 3) << "a graph may have run since";
  EXPECT_EQ(launches_of_step(), 3);
}

}  // namespace
}  // namespace weft::test
