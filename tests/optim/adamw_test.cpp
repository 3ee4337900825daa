#include "weft/adamw.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "weft/error.hpp"

namespace weft::test {
namespace {

/// torch.optim.AdamW's single-tensor loop in double, written from its documentation.
class DoubleAdamW {
 public:
  DoubleAdamW(std::vector<float> const& parameters, AdamWOptions const& options)
      : options_(options), p_(parameters.begin(), parameters.end()), m_(p_.size()), v_(p_.size()) {}

  void step(std::vector<float> const& gradient) {
    ++step_;
    double const beta1 = options_.beta1;
    double const beta2 = options_.beta2;
    double const bias1 = 1 - std::pow(beta1, step_);
    double const bias2 = 1 - std::pow(beta2, step_);
    for (std::size_t i = 0; i < p_.size(); ++i) {
      p_[i] *= 1 - static_cast<double>(options_.lr) * options_.weight_decay;
      m_[i] = beta1 * m_[i] + (1 - beta1) * gradient[i];
      v_[i] = beta2 * v_[i] + (1 - beta2) * gradient[i] * gradient[i];
      p_[i] -= options_.lr / bias1 * m_[i] / (std::sqrt(v_[i]) / std::sqrt(bias2) + options_.eps);
    }
  }
  [[nodiscard]] std::vector<double> const& parameters() const { return p_; }
  void set_lr(float lr) { options_.lr = lr; }

 private:
  AdamWOptions options_;
  int step_ = 0;
  std::vector<double> p_, m_, v_;
};

std::vector<float> random_vector(std::size_t count, std::mt19937_64& random, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(AdamWTest, FollowsTheDoubleReferenceForFiveHundredSteps) {
  std::mt19937_64 random(1);
  AdamWOptions const options{.lr = 3e-3F, .beta1 = 0.9F, .beta2 = 0.95F, .eps = 1e-8F, .weight_decay = 0.1F};
  auto parameters = random_vector(1021, random, 1);
  DoubleAdamW reference(parameters, options);
  AdamW optimizer({BufferView(std::span(parameters))}, options);
  for (int step = 0; step < 500; ++step) {
    float const lr = 3e-3F * static_cast<float>(500 - step) / 500;
    optimizer.set_lr(lr);
    reference.set_lr(lr);
    auto gradient = random_vector(1021, random, 0.1F);
    std::vector<BufferView> const gradients{BufferView(std::span(gradient))};
    optimizer.step(gradients);
    reference.step(gradient);
  }
  EXPECT_EQ(optimizer.step_count(), 500);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    // 500 steps, each rounding the parameter by half an ulp of about 1.
    ASSERT_NEAR(parameters[i], reference.parameters()[i], 1e-5) << "element " << i;
  }
}

TEST(AdamWTest, KnownFirstStep) {
  // At step 1 the bias corrections cancel: p ← p·(1 − lr·wd) − lr·g/(|g| + eps).
  std::vector<float> parameter{1.0F, -2.0F, 0.5F};
  std::vector<float> gradient{0.25F, -4.0F, 0.0F};
  AdamW optimizer({BufferView(std::span(parameter))}, {.lr = 0.1F, .weight_decay = 0.5F});
  std::vector<BufferView> const gradients{BufferView(std::span(gradient))};
  optimizer.step(gradients);
  EXPECT_NEAR(parameter[0], 0.95 - 0.1, 1e-6);
  EXPECT_NEAR(parameter[1], -1.9 + 0.1, 1e-6);
  EXPECT_NEAR(parameter[2], 0.475, 1e-7);
}

TEST(AdamWTest, ResumesFromItsMomentsBitIdentically) {
  std::mt19937_64 random(2);
  auto parameters = random_vector(200, random, 1);
  AdamW optimizer({BufferView(std::span(parameters))});
  std::vector<std::vector<float>> gradients;
  for (int step = 0; step < 8; ++step) gradients.push_back(random_vector(200, random, 1));
  for (int step = 0; step < 4; ++step) optimizer.step(std::vector<BufferView>{BufferView(std::span(gradients[step]))});

  auto resumed_parameters = parameters;
  AdamW resumed({BufferView(std::span(resumed_parameters))});
  resumed.set_step_count(optimizer.step_count());
  std::copy_n(static_cast<float const*>(optimizer.exp_avg(0).data), 200, static_cast<float*>(resumed.exp_avg(0).data));
  std::copy_n(static_cast<float const*>(optimizer.exp_avg_sq(0).data), 200,
              static_cast<float*>(resumed.exp_avg_sq(0).data));
  for (int step = 4; step < 8; ++step) {
    optimizer.step(std::vector<BufferView>{BufferView(std::span(gradients[step]))});
    resumed.begin_step();
    resumed.update(0, BufferView(std::span(gradients[step])));
  }
  EXPECT_EQ(parameters, resumed_parameters);
}

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

TEST(AdamWTest, RefusesWhatDoesNotFit) {
  std::vector<float> parameter(10);
  std::vector<float> shorter(9);
  std::vector<double> wide(10);
  expect_error([&] { AdamW({BufferView(std::span(wide))}); }, ErrorCode::unsupported, "parameter 0 is f64");
  expect_error(
      [&] {
        AdamW({BufferView(parameter.data(), 10, DataType::f32, {DeviceType::cuda, 1})});
      },
      ErrorCode::unsupported, "cuda:1");
  AdamW optimizer({BufferView(std::span(parameter))});
  expect_error([&] { optimizer.update(0, BufferView(std::span(parameter))); }, ErrorCode::invalid_argument,
               "begin_step");
  optimizer.begin_step();
  expect_error([&] { optimizer.update(1, BufferView(std::span(parameter))); }, ErrorCode::invalid_argument,
               "index 1 of 1");
  expect_error([&] { optimizer.update(0, BufferView(std::span(shorter))); }, ErrorCode::invalid_argument, "9 f32");
  expect_error([&] { optimizer.update(0, BufferView(std::span(wide))); }, ErrorCode::invalid_argument, "10 f64");
  expect_error([&] { optimizer.step({}); }, ErrorCode::invalid_argument, "0 gradients for 1");
}

}  // namespace
}  // namespace weft::test
