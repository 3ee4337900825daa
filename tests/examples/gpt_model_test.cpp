#include "gpt_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gpt_reference.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using train_gpt::Batch;
using train_gpt::GptConfig;
using train_gpt::GptModel;

constexpr GptConfig kSmall{.layers = 2, .width = 8, .heads = 2, .seq = 5};
constexpr int kBatch = 3;

/// Weights far from their initial values, so that every term of every gradient counts.
void randomise(GptModel& model, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.4F);
  for (BufferView const& view : model.parameters()) {
    std::generate_n(static_cast<float*>(view.data), view.count, [&] { return normal(random); });
  }
}

Batch random_batch(unsigned seed) {
  std::mt19937 random(seed);
  Batch batch;
  for (int i = 0; i < kBatch * kSmall.seq; ++i) {  // few values, so that tokens repeat and their gradients add up
    batch.inputs.push_back(static_cast<std::uint8_t>(random() % 11));
    batch.targets.push_back(static_cast<std::uint8_t>(random() % 256));
  }
  return batch;
}

std::vector<Buffer> gradients_of(GptModel const& model, float fill) {
  std::vector<Buffer> gradients;
  for (BufferView const& view : model.parameters()) {
    gradients.push_back(Buffer::host(view.count, view.dtype));
    std::ranges::fill(gradients.back().as<float>(), fill);
  }
  return gradients;
}

std::vector<std::vector<double>> in_double(GptModel const& model) {
  std::vector<std::vector<double>> values;
  for (BufferView const& view : model.parameters()) {
    auto const* from = static_cast<float const*>(view.data);
    values.emplace_back(from, from + view.count);
  }
  return values;
}

TEST(GptModel, LossIsTheReferences) {
  GptModel model(kSmall, kBatch);
  randomise(model, 1);
  Batch const batch = random_batch(2);
  auto const parameters = in_double(model);
  EXPECT_NEAR(model.forward(batch), GptReference(kSmall, parameters).loss(batch.inputs, batch.targets), 2e-5);
}

// Parameters that arrive only when they are asked for, in memory from outside.
TEST(GptModel, AsksForEachParameterBeforeItReadsIt) {
  GptModel model(kSmall, kBatch);
  randomise(model, 1);
  Batch const batch = random_batch(2);
  float const expected = model.forward(batch);
  std::vector<std::vector<float>> arriving;
  std::vector<Buffer> memory;
  std::vector<BufferView> views;
  for (BufferView const& view : model.parameters()) {
    auto const* const from = static_cast<float const*>(view.data);
    arriving.emplace_back(from, from + view.count);
    memory.push_back(Buffer::host(view.count, view.dtype));
    views.push_back(memory.back().view());
    std::fill_n(static_cast<float*>(views.back().data), view.count, NAN);
  }
  model.use_parameters(views);
  std::vector<int> asked(views.size(), 0);
  EXPECT_EQ(model.forward(batch,
                          [&](std::size_t i) {
                            ++asked[i];
                            std::copy(arriving[i].begin(), arriving[i].end(), static_cast<float*>(views[i].data));
                          }),
            expected);
  EXPECT_EQ(asked, std::vector<int>(views.size(), 1));
  views.pop_back();
  EXPECT_THROW(model.use_parameters(views), Error);
}

TEST(GptModel, EveryGradientIsTheReferencesSlope) {
  GptModel model(kSmall, kBatch);
  randomise(model, 3);
  Batch const batch = random_batch(4);
  std::vector<Buffer> const gradients = gradients_of(model, NAN);  // whatever memory holds must not matter
  (void)model.forward(batch);
  model.backward(
      batch, [&](std::size_t i) { return gradients[i].view(); }, [](std::size_t) {});

  auto parameters = in_double(model);
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
      worst = std::max(worst, std::abs(slope - static_cast<double>(gradients[tensor].as<float>()[i])));
      largest = std::max(largest, std::abs(slope));
    }
    EXPECT_GT(largest, 1e-4) << model.parameter_names()[tensor];
    EXPECT_LT(worst, 1e-6 + 1e-4 * largest) << model.parameter_names()[tensor];
  }
}

TEST(GptModel, GradientsAccumulateAndScale) {
  GptModel model(kSmall, kBatch);
  randomise(model, 5);
  Batch const batch = random_batch(6);
  std::vector<Buffer> const once = gradients_of(model, 0.0F);
  std::vector<Buffer> const added = gradients_of(model, 7.0F);
  (void)model.forward(batch);
  model.backward(
      batch, [&](std::size_t i) { return once[i].view(); }, [](std::size_t) {});
  (void)model.forward(batch);
  model.backward(
      batch, [&](std::size_t i) { return added[i].view(); }, [](std::size_t) {}, {.accumulate = true, .scale = 0.5F});
  for (std::size_t tensor = 0; tensor < once.size(); ++tensor) {
    for (std::size_t i = 0; i < once[tensor].count(); ++i) {
      ASSERT_NEAR(added[tensor].as<float>()[i], 7.0F + 0.5F * once[tensor].as<float>()[i], 1e-5F)
          << model.parameter_names()[tensor] << " [" << i << "]";
    }
  }
}

TEST(GptModel, EachTensorIsAnnouncedOnceWhenItsGradientIsComplete) {
  GptModel model(kSmall, kBatch);
  randomise(model, 7);
  Batch const batch = random_batch(8);
  std::vector<Buffer> const gradients = gradients_of(model, 0.0F);
  std::vector<std::vector<float>> announced(gradients.size());
  (void)model.forward(batch);
  model.backward(
      batch, [&](std::size_t i) { return gradients[i].view(); },
      [&](std::size_t i) {
        ASSERT_TRUE(announced[i].empty()) << "twice: " << model.parameter_names()[i];
        announced[i].assign(gradients[i].as<float>().begin(), gradients[i].as<float>().end());
      });
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(announced[i], gradients[i].as<float>())) << model.parameter_names()[i];
  }
}

TEST(GptModel, DefaultHasAboutTenMillionParameters) {
  GptModel const model(GptConfig{}, 1);
  EXPECT_GT(model.parameter_count(), 9'000'000U);
  EXPECT_LT(model.parameter_count(), 12'000'000U);
}

}  // namespace
}  // namespace weft::test
