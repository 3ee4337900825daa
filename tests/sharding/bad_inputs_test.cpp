// Steps that are refused for what they were given, and made again with what is right.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "harness/ranks.hpp"
#include "weft/error.hpp"
#include "weft/fully_sharded.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kTensors = 3;
constexpr std::size_t kElements = 1000;

/// One model under either strategy: `backward` adds gradients, `step` ends the step, `first` is a parameter's value.
struct Trainee {
  std::vector<std::vector<float>> values{kTensors, std::vector<float>(kElements, 1)};
  std::unique_ptr<ZeroOptimizer> zero;
  std::unique_ptr<FullySharded> sharded;

  Trainee(Communicator& world, bool shards_parameters, GradientPolicy const& policy) {
    ParameterGroup group{{}, SgdOptions{.lr = 0.1}};
    for (auto& tensor : values) group.parameters.emplace_back(std::span(tensor));
    if (shards_parameters) {
      FullyShardedOptions options;
      options.gradients = policy;
      sharded = std::make_unique<FullySharded>(world, std::vector<ShardedUnit>{{"all", {group}}}, options);
    } else {
      ZeroOptions options;
      options.gradients = policy;
      zero = std::make_unique<ZeroOptimizer>(world, std::vector<ParameterGroup>{group}, options);
    }
  }

  void backward() {
    if (sharded) {
      sharded->before_forward(0);
      sharded->after_forward(0);
      sharded->before_backward(0);
    } else {
      zero->wait_parameters();
    }
    for (std::size_t i = 0; i < kTensors; ++i) {
      BufferView const gradient = sharded ? sharded->gradient(i) : zero->gradient(i);
      std::fill_n(static_cast<float*>(gradient.data), kElements, 1.0F);
      if (zero) zero->mark_ready(i);
    }
    if (sharded) sharded->after_backward(0);
  }

  void step(StepInputs const& inputs = {}) { sharded ? sharded->step(inputs) : zero->step(inputs); }
  [[nodiscard]] float first() { return (sharded ? sharded->master(0) : zero->master(0))[0]; }
};

struct Case {
  char const* name;
  bool shards_parameters;
  GradientPolicy policy;
};

class BadStepInputs : public testing::TestWithParam<Case> {};

// The norm is judged before the update: a refusal between the two would leave the next step without its clipping.
TEST_P(BadStepInputs, AreRefusedAndTheStepComesAgainAsIfNothingHadBeen) {
  std::int64_t const zeroth = 0;
  StepInputs const bad[] = {
      {.clip_value = -1.0F}, {.clip_value = std::numeric_limits<float>::quiet_NaN()}, {.step = &zeroth}};
  run_thread_ranks(2, [&](Communicator& world) {
    Trainee untroubled(world, GetParam().shards_parameters, GetParam().policy);
    Trainee troubled(world, GetParam().shards_parameters, GetParam().policy);
    for (std::size_t i = 0; i < std::size(bad); ++i) {
      untroubled.backward();
      untroubled.step();
      troubled.backward();
      bool refused = false;
      try {
        troubled.step(bad[i]);
      } catch (Error const& error) {
        refused = error.code() == ErrorCode::invalid_argument &&
                  std::string(error.what()).find("::step: ") != std::string::npos;
      }
      EXPECT_TRUE(refused) << i;
      troubled.step();
      EXPECT_EQ(troubled.first(), untroubled.first()) << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, BadStepInputs,
                         testing::Values(Case{"zero", false, {}}, Case{"zero_norm", false, {.max_norm = 1}},
                                         Case{"sharded", true, {}}, Case{"sharded_norm", true, {.max_norm = 1}}),
                         [](auto const& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace weft::test
