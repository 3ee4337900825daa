#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "weft/error.hpp"
#include "weft/optimizer.hpp"

namespace weft::test {
namespace {

template <typename Call>
void expect_error(Call&& call, ErrorCode code, std::string const& part) {
  try {
    call();
    FAIL() << "expected an Error about " << part;
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(OptimizerErrorsTest, RefusesAStepBelowTheFirstAndALimitBelowZero) {
  std::vector<float> parameter(10);
  Optimizer optimizer({BufferView(std::span(parameter))}, AdamWOptions{});
  std::int64_t const zero = 0;
  expect_error([&] { optimizer.begin_step({.step = &zero}); }, ErrorCode::invalid_argument, "step is 0");
  for (float const wrong : {-1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    expect_error([&] { optimizer.begin_step({.clip_value = wrong}); }, ErrorCode::invalid_argument, "clip_value is ");
  }
  expect_error([&] { optimizer.update(0, BufferView(std::span(parameter))); }, ErrorCode::invalid_argument,
               "no step has begun");
  EXPECT_EQ(optimizer.step_count(), 0);
}

TEST(OptimizerErrorsTest, RefusesWhatDoesNotFit) {
  std::vector<float> parameter(10);
  std::vector<float> shorter(9);
  std::vector<double> wide(10);
  AdamWOptions const adamw;
  expect_error([&] { Optimizer({BufferView(std::span(wide))}, adamw); }, ErrorCode::unsupported, "parameter 0 is f64");
  expect_error(
      [&] {
        Optimizer(
            {BufferView(std::span(shorter)), BufferView(parameter.data(), 10, DataType::f32, {DeviceType::cuda, 1})},
            adamw);
      },
      ErrorCode::unsupported, "cuda:1");
  expect_error([&] { Optimizer({BufferView(nullptr, 3, DataType::f32)}, adamw); }, ErrorCode::invalid_argument,
               "no memory");
  Optimizer optimizer({BufferView(std::span(parameter))}, adamw);
  expect_error([&] { optimizer.update(0, BufferView(std::span(parameter))); }, ErrorCode::invalid_argument,
               "begin_step");
  optimizer.begin_step();
  expect_error([&] { optimizer.update(1, BufferView(std::span(parameter))); }, ErrorCode::invalid_argument,
               "index 1 of 1");
  expect_error([&] { optimizer.update(0, BufferView(std::span(shorter))); }, ErrorCode::invalid_argument, "9 f32");
  expect_error([&] { optimizer.update(0, BufferView(std::span(wide))); }, ErrorCode::invalid_argument, "10 f64");
  expect_error([&] { optimizer.step({}); }, ErrorCode::invalid_argument, "0 gradients for 1");
  expect_error([&] { optimizer.set_state(0, 0, shorter); }, ErrorCode::invalid_argument, "given 9");
  expect_error([&] { optimizer.set_state(0, 2, parameter); }, ErrorCode::invalid_argument, "state 2");
}

TEST(OptimizerErrorsTest, ParametersItDoesNotHaveAreNamedWithTheCall) {
  std::vector<float> parameter(10);
  Optimizer optimizer({BufferView(std::span(parameter))}, AdamWOptions{});
  auto const code = ErrorCode::invalid_argument;
  expect_error([&] { (void)optimizer.parameter(1); }, code, "Optimizer::parameter: index 1 of 1");
  expect_error([&] { (void)optimizer.master(1); }, code, "Optimizer::master: index 1 of 1");
  expect_error([&] { (void)optimizer.state_names(1); }, code, "Optimizer::state_names: index 1 of 1");
  expect_error([&] { (void)optimizer.state(1, 0); }, code, "Optimizer::state: index 1 of 1");
  expect_error([&] { optimizer.set_state(1, 0, parameter); }, code, "Optimizer::set_state: index 1 of 1");
}

TEST(OptimizerErrorsTest, RefusesGroupsItDoesNotHave) {
  std::vector<float> parameter(10);
  Optimizer optimizer({BufferView(std::span(parameter))}, AdamWOptions{});
  expect_error([&] { (void)optimizer.options(9); }, ErrorCode::invalid_argument, "Optimizer::options: group 9 of 1");
  expect_error([&] { optimizer.set_lr(1, 0.1); }, ErrorCode::invalid_argument, "Optimizer::set_lr: group 1 of 1");
}

TEST(OptimizerErrorsTest, RefusesRatesAndCountsThatItsConstructorWould) {
  std::vector<float> parameter(10);
  AdamWOptions const adamw{.lr = 0.25};
  Optimizer optimizer({BufferView(std::span(parameter))}, adamw);
  for (double const lr : {-5.0, std::nan(""), static_cast<double>(INFINITY)}) {
    expect_error([&] { optimizer.set_lr(lr); }, ErrorCode::invalid_argument, "AdamW: lr is ");
    expect_error([&] { optimizer.set_lr(0, lr); }, ErrorCode::invalid_argument, "AdamW: lr is ");
  }
  expect_error([&] { optimizer.set_step_count(-7); }, ErrorCode::invalid_argument,
               "Optimizer::set_step_count: -7 steps");
  expect_error([&] { optimizer.set_step_count(std::numeric_limits<std::int64_t>::max()); }, ErrorCode::invalid_argument,
               "Optimizer::set_step_count: 9223372036854775807 steps");
  for (std::int64_t const step : {std::int64_t{0}, std::numeric_limits<std::int64_t>::max()}) {
    expect_error([&] { optimizer.begin_step({.step = &step}); }, ErrorCode::invalid_argument,
                 fmt::format("*StepInputs::step is {}", step));
  }
  EXPECT_EQ(lr_of(optimizer.options()), 0.25) << "what is refused changes nothing";
  EXPECT_EQ(optimizer.step_count(), 0);
}

TEST(OptimizerErrorsTest, ATensorIsUpdatedOnceAStep) {
  std::vector<float> a{1, 1};
  std::vector<float> b{1, 1};
  std::vector<float> gradient{1, 1};
  BufferView const one{std::span(gradient)};
  Optimizer optimizer({BufferView(std::span(a)), BufferView(std::span(b))}, SgdOptions{.lr = 0.25});
  float const found_inf = 1;
  for (float const* const found : {static_cast<float const*>(nullptr), &found_inf}) {
    optimizer.begin_step({.found_inf = found});
    expect_error([&] { optimizer.update(0, one.slice(0, 1)); }, ErrorCode::invalid_argument, "1 f32");
    optimizer.update(0, one);  // what was refused was none
    expect_error([&] { optimizer.update(0, one); }, ErrorCode::invalid_argument, "parameter 0 has been updated");
    expect_error([&] { (void)optimizer.update_moments(0, one); }, ErrorCode::invalid_argument, "parameter 0 has been");
    optimizer.update(1, one);
  }
  EXPECT_EQ(a, (std::vector<float>{0.75, 0.75}));
  EXPECT_EQ(b, a);
}

// A caller that mends its gradients and tries again is where it was.
TEST(OptimizerErrorsTest, WhatIsRefusedIsNoStep) {
  std::vector<float> a{1, 1};
  std::vector<float> b{1, 1};
  std::vector<float> gradient{1, 1};
  BufferView const one{std::span(gradient)};
  Optimizer optimizer({BufferView(std::span(a)), BufferView(std::span(b))}, SgdOptions{.lr = 0.25});
  std::vector<BufferView> gradients{one, one.slice(0, 1)};
  expect_error([&] { optimizer.step(gradients); }, ErrorCode::invalid_argument, "gradient 1 has 1 f32");
  EXPECT_EQ(optimizer.step_count(), 0);

  optimizer.begin_step();
  std::vector<std::size_t> const both{0, 1};
  std::vector<std::size_t> const twice{1, 1};
  expect_error([&] { optimizer.update(both, gradients); }, ErrorCode::invalid_argument, "gradient 1 has 1 f32");
  gradients[1] = one;
  expect_error([&] { optimizer.update(twice, gradients); }, ErrorCode::invalid_argument,
               "parameter 1 has been updated");
  EXPECT_EQ(b, (std::vector<float>{1, 1}));
  optimizer.update(both, gradients);
  optimizer.step(gradients);
  EXPECT_EQ(optimizer.step_count(), 2);
  EXPECT_EQ(a, (std::vector<float>{0.5, 0.5}));
  EXPECT_EQ(b, a);
}

TEST(OptimizerErrorsTest, RefusesMemoryThatDoesNotFit) {
  std::vector<float> parameter(10);
  std::vector<float> state(10);
  std::vector<float> shorter(9);
  std::vector<ParameterGroup> const groups{{{BufferView(std::span(parameter))}, LionOptions{}}};
  auto const with = [&](std::vector<ParameterMemory> const& memory) { Optimizer(groups, memory, {}).begin_step(); };
  with({{{}, {BufferView(std::span(state))}}});
  auto const code = ErrorCode::invalid_argument;
  expect_error([&] { with({}); }, code, "memory for 0 parameters, there are 1");
  expect_error([&] { with({{}}); }, code, "parameter 0 of 10 elements wants 1 f32 states");
  expect_error([&] { with({{{}, {BufferView(std::span(shorter))}}}); }, code, "wants 1 f32 states");
  expect_error(
      [&] {
        with({{BufferView(std::span(state)), {BufferView(std::span(state))}}});
      },
      code, "no f32 original");
  expect_error([&] { with({{{}, {BufferView(nullptr, 10, DataType::f32)}}}); }, code, "wants 1 f32 states");
  expect_error(
      [&] {
        Optimizer(groups, {{{}, {BufferView(std::span(state))}}}, {.state = StateType::block8}).begin_step();
      },
      ErrorCode::unsupported, "packed states");
}

TEST(OptimizerErrorsTest, RefusesOptionsOfAnotherKind) {
  std::vector<float> parameter(10);
  Optimizer optimizer({BufferView(std::span(parameter))}, SgdOptions{});
  auto const code = ErrorCode::invalid_argument;
  expect_error([&] { optimizer.set_options(0, LionOptions{}); }, code, "group 0 is SGD with 0 states");
  expect_error([&] { optimizer.set_options(0, SgdOptions{.momentum = 0.9}); }, code, "SGD's with 1");
  expect_error([&] { optimizer.set_options(0, SgdOptions{.lr = -1}); }, code, "lr");
  expect_error([&] { optimizer.set_options(1, SgdOptions{}); }, code, "group 1 of 1");
}

TEST(OptimizerErrorsTest, RefusesParametersThatShareMemory) {
  std::vector<float> memory(40);
  BufferView const all{std::span(memory)};
  auto const make = [](std::vector<BufferView> const& first, std::vector<BufferView> const& second) {
    return Optimizer({{first, AdamWOptions{}}, {second, SgdOptions{}}});
  };
  auto const refused = [&](std::vector<BufferView> const& first, std::vector<BufferView> const& second,
                           std::string const& which) {
    expect_error([&] { (void)make(first, second); }, ErrorCode::invalid_argument, which + " share memory");
  };
  refused({all, all}, {}, "parameters 0 and 1");
  refused({all.slice(0, 10), all.slice(20, 10)}, {all.slice(29, 5)}, "parameters 1 and 2");
  refused({all.slice(20, 10), all.slice(0, 10)}, {all.slice(5, 10)}, "parameters 1 and 2");
  refused({all.slice(3, 1)}, {all.slice(10, 1), all.slice(0, 10)}, "parameters 0 and 2");
  make({all.slice(10, 10), all.slice(0, 10)}, {all.slice(20, 0), all.slice(20, 0), all.slice(20, 20)});
}

TEST(OptimizerErrorsTest, RefusesOptionsThatMakeNoSense) {
  auto const refused = [](OptimizerOptions const& options, std::string const& part) {
    expect_error([&] { check(options); }, ErrorCode::invalid_argument, part);
  };
  refused(AdamWOptions{.lr = -1}, "AdamW: lr is -1");
  refused(AdamOptions{.lr = std::nan("")}, "Adam: lr is nan");
  refused(AdamOptions{.beta1 = 1}, "Adam: beta1 is 1");
  refused(LambOptions{.beta2 = -0.1}, "Lamb: beta2 is -0.1");
  refused(AdamWOptions{.eps = -1e-8}, "AdamW: eps is -1e-08");
  refused(SgdOptions{.weight_decay = -1}, "SGD: weight_decay is -1");
  refused(SgdOptions{.momentum = -1}, "SGD: momentum is -1");
  refused(SgdOptions{.nesterov = true}, "SGD: nesterov");
  refused(LionOptions{.beta2 = 2}, "Lion: beta2 is 2");
  refused(AdagradOptions{.initial_accumulator_value = -1}, "Adagrad: initial_accumulator_value");
  for (OptimizerOptions const& options :
       {OptimizerOptions(AdamWOptions{}), OptimizerOptions(AdamOptions{}), OptimizerOptions(SgdOptions{}),
        OptimizerOptions(LambOptions{}), OptimizerOptions(LionOptions{}), OptimizerOptions(AdagradOptions{})}) {
    EXPECT_NO_THROW(check(options)) << "alternative " << options.index();
  }
}

}  // namespace
}  // namespace weft::test
