#include "gpt_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "gpt_reference.hpp"

namespace weft::test {
namespace {

using train_gpt::Batch;
using train_gpt::GptConfig;
using train_gpt::GptModel;
using train_gpt::GptParameters;
using train_gpt::Pass;

constexpr GptConfig kSmall{.layers = 2, .width = 8, .heads = 2, .seq = 5};
constexpr int kBatch = 3;

/// Weights far from their initial values, so that every term of every gradient counts.
class RandomTensors final : public train_gpt::Tensors {
 public:
  RandomTensors(GptParameters const& parameters, unsigned seed, float gradient) : parameters_(parameters) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, 0.4F);
    for (auto const& tensor : parameters.tensors()) {
      values.emplace_back(tensor.count);
      std::ranges::generate(values.back(), [&] { return normal(random); });
      gradients.emplace_back(tensor.count, gradient);
    }
    announced.resize(values.size());
  }

  void enter(Pass pass, std::size_t unit) override {
    ASSERT_FALSE(entered_) << "unit " << unit << " is entered before another is left";
    entered_ = {pass, unit};
    visits.emplace_back(pass, unit);
  }
  void leave(Pass pass, std::size_t unit) override {
    ASSERT_EQ(entered_, std::pair(pass, unit));
    entered_.reset();
  }
  [[nodiscard]] float const* parameter(std::size_t index) override {
    check(index);
    return values[index].data();
  }
  [[nodiscard]] float* gradient(std::size_t index) override {
    check(index);
    return gradients[index].data();
  }
  void gradient_done(std::size_t index) override {
    check(index);
    ASSERT_TRUE(announced[index].empty()) << "twice: " << parameters_.tensors()[index].name;
    announced[index] = gradients[index];
  }
  [[nodiscard]] float keep() const override { return kept; }

  std::vector<std::vector<float>> values;
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<float>> announced;  ///< gradients when they were done
  std::vector<std::pair<Pass, std::size_t>> visits;
  float kept = 0;

 private:
  void check(std::size_t index) const {
    ASSERT_TRUE(entered_ && entered_->second == parameters_.tensors()[index].unit)
        << parameters_.tensors()[index].name << " is used outside its unit";
  }

  GptParameters const& parameters_;
  std::optional<std::pair<Pass, std::size_t>> entered_;
};

Batch random_batch(unsigned seed) {
  std::mt19937 random(seed);
  Batch batch;
  for (int i = 0; i < kBatch * kSmall.seq; ++i) {  // few values, so that tokens repeat and their gradients add up
    batch.inputs.push_back(static_cast<std::uint8_t>(random() % 11));
    batch.targets.push_back(static_cast<std::uint8_t>(random() % 256));
  }
  return batch;
}

std::vector<std::vector<double>> in_double(RandomTensors const& tensors) {
  std::vector<std::vector<double>> values;
  for (auto const& tensor : tensors.values) values.emplace_back(tensor.begin(), tensor.end());
  return values;
}

TEST(GptModel, LossIsTheReferences) {
  GptModel model(kSmall, {kBatch});
  RandomTensors tensors(model.parameters(), 1, 0.0F);
  Batch const batch = random_batch(2);
  auto const parameters = in_double(tensors);
  EXPECT_NEAR(model.forward(batch, tensors), GptReference(kSmall, parameters).loss(batch.inputs, batch.targets), 2e-5);
}

TEST(GptModel, UnitsCoverTheTensorsAndAreEnteredInOrder) {
  GptModel model(kSmall, {kBatch});
  RandomTensors tensors(model.parameters(), 1, 0.0F);
  (void)model.forward(random_batch(2), tensors);
  model.backward(random_batch(2), tensors);
  auto const& units = model.parameters().units();
  ASSERT_EQ(units.size(), 4U);
  std::size_t next = 0;
  for (auto const& unit : units) {
    EXPECT_EQ(unit.first, next);
    next += unit.count;
  }
  EXPECT_EQ(next, model.parameters().tensors().size());
  std::vector<std::pair<Pass, std::size_t>> expected;
  for (std::size_t unit = 0; unit < 4; ++unit) expected.emplace_back(Pass::forward, unit);
  for (std::size_t unit = 4; unit-- > 0;) expected.emplace_back(Pass::backward, unit);
  EXPECT_EQ(tensors.visits, expected);
}

TEST(GptModel, EveryGradientIsTheReferencesSlope) {
  GptModel model(kSmall, {kBatch});
  RandomTensors tensors(model.parameters(), 3, NAN);  // whatever gradients' memory holds must not matter
  Batch const batch = random_batch(4);
  (void)model.forward(batch, tensors);
  model.backward(batch, tensors);

  auto parameters = in_double(tensors);
  GptReference const reference(kSmall, parameters);
  for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor) {
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < parameters[tensor].size(); ++i) {
      bool const unused = tensor == 0 && i >= 11U * static_cast<std::size_t>(kSmall.width);
      double slope = 0;  // of tokens that do not occur
      if (!unused) {
        constexpr double kStep = 1e-5;
        double& value = parameters[tensor][i];
        double const centre = value;
        value = centre + kStep;
        double const above = reference.loss(batch.inputs, batch.targets);
        value = centre - kStep;
        slope = (above - reference.loss(batch.inputs, batch.targets)) / (2 * kStep);
        value = centre;
      }
      worst = std::max(worst, std::abs(slope - static_cast<double>(tensors.gradients[tensor][i])));
      largest = std::max(largest, std::abs(slope));
    }
    EXPECT_GT(largest, 1e-4) << model.parameters().tensors()[tensor].name;
    EXPECT_LT(worst, 1e-6 + 1e-4 * largest) << model.parameters().tensors()[tensor].name;
  }
}

TEST(GptModel, GradientsAccumulateAndScale) {
  GptModel model(kSmall, {kBatch});
  Batch const batch = random_batch(6);
  RandomTensors once(model.parameters(), 5, 0.0F);
  RandomTensors added(model.parameters(), 5, 7.0F);
  added.kept = 1;
  (void)model.forward(batch, once);
  model.backward(batch, once);
  (void)model.forward(batch, added);
  model.backward(batch, added, 0.5F);
  for (std::size_t tensor = 0; tensor < once.gradients.size(); ++tensor) {
    for (std::size_t i = 0; i < once.gradients[tensor].size(); ++i) {
      ASSERT_NEAR(added.gradients[tensor][i], 7.0F + 0.5F * once.gradients[tensor][i], 1e-5F)
          << model.parameters().tensors()[tensor].name << " [" << i << "]";
    }
  }
}

TEST(GptModel, EachTensorIsAnnouncedOnceWhenItsGradientIsComplete) {
  GptModel model(kSmall, {kBatch});
  RandomTensors tensors(model.parameters(), 7, 0.0F);
  (void)model.forward(random_batch(8), tensors);
  model.backward(random_batch(8), tensors);
  EXPECT_EQ(tensors.announced, tensors.gradients);
}

TEST(GptModel, RecomputingChangesNoBit) {
  Batch const batch = random_batch(9);
  GptModel keeps(kSmall, {kBatch});
  GptModel recomputes(kSmall, {.max_batch = kBatch, .recompute = true});
  RandomTensors expected(keeps.parameters(), 10, NAN);
  RandomTensors got(keeps.parameters(), 10, NAN);
  EXPECT_EQ(recomputes.forward(batch, got), keeps.forward(batch, expected));
  keeps.backward(batch, expected);
  recomputes.backward(batch, got);
  EXPECT_EQ(got.gradients, expected.gradients);
}

TEST(GptModel, DefaultHasAboutTenMillionParameters) {
  GptParameters const parameters((GptConfig()));
  EXPECT_GT(parameters.count(), 9'000'000U);
  EXPECT_LT(parameters.count(), 12'000'000U);
  for (GptConfig const& config : {GptConfig{}, kSmall, GptConfig{.layers = 3, .width = 6, .heads = 1, .seq = 7}}) {
    EXPECT_EQ(GptParameters::count_of(config), static_cast<double>(GptParameters(config).count()));
  }
}

}  // namespace
}  // namespace weft::test
