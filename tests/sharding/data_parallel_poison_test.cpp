// Every buffer of a replica's step is overwritten with NaN right after its last legal use: gradients behind their
// update, while later buckets still travel, and what compression rounds and widens. No bit of the loss curve changes.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sharding/zero_training.hpp"
#include "weft/gradient_compression.hpp"

namespace weft::test {
namespace {

struct Case {
  char const* name;
  Training training;
  std::optional<CompressionOptions> compression{};
  UnusedGradients unused = UnusedGradients::zero;
};

std::vector<TensorSpec> small_model() {
  std::vector<TensorSpec> specs = model(11, 5);
  for (TensorSpec& spec : specs) spec.count /= 4;
  specs[3].count = 50'001;  // reached where it lies; small buckets are staged
  return specs;
}

std::vector<Case> cases() {
  Training const plain{.specs = small_model(), .first = AdamWOptions{.lr = 0.01}, .second = SgdOptions{.lr = 0.1}};
  Training unused = plain;
  unused.unused = true;
  Training accumulating = plain;
  accumulating.passes = 3;
  return {{"plain", plain},
          {"unused", unused},
          {"found", unused, {}, UnusedGradients::find},
          {"accumulating", accumulating},
          {"bf16", plain, CompressionOptions{}},
          {"f16", unused, CompressionOptions{.wire = DataType::f16}},
          {"bf16_feedback", accumulating, CompressionOptions{.error_feedback = true}},
          {"f16_feedback_found", unused, CompressionOptions{.wire = DataType::f16, .error_feedback = true},
           UnusedGradients::find}};
}

void overwrite(BufferView const& view) {
  if (view.count != 0) std::memset(view.data, 0xff, view.bytes());
}

/// Some ranks are late now and then, so that others are far ahead of them.
void dawdle(int rank, std::size_t step, std::size_t tensor) {
  if ((static_cast<std::size_t>(rank) + step + tensor) % 5 == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(150));
  }
}

double loss_of(std::vector<BufferView> const& parameters) {
  double loss = 0;
  for (BufferView const& parameter : parameters) {
    for (float const value : floats(parameter)) loss += static_cast<double>(value) * value;
  }
  return loss;
}

/// What a training was like, and what it ended with.
struct Outcome {
  std::vector<double> losses;
  std::vector<std::byte> parameters;

  friend bool operator==(Outcome const&, Outcome const&) = default;
};

/// `by_tensor`: each gradient is used, and gone, as soon as it is there.
Outcome train(Communicator& world, Case const& c, bool by_tensor, bool poison) {
  Training const& t = c.training;
  Parameters const parameters(t.specs);
  BucketerOptions options{.limits = {500, 2000}, .stream = {}, .unused = c.unused};
  CompressionOptions compression = c.compression.value_or(CompressionOptions{});
  compression.poison = poison;
  if (c.compression) options.hook = compress_gradients(compression);
  DataParallel ddp(world, parameters.views(), options);
  Optimizer optimizer(parameters.groups(t.first, t.second));
  auto const use = [&](std::size_t i) {
    if (!ddp.has_gradient(i)) return;
    optimizer.update(i, ddp.gradient(i));
    if (poison) overwrite(ddp.gradient(i));
  };
  Outcome outcome;
  for (std::size_t step = 0; step < t.steps; ++step) {
    outcome.losses.push_back(loss_of(parameters.views()));
    auto const backward = [&](std::size_t number) {
      for (std::size_t const i : shuffled(t.specs.size(), 7 + static_cast<std::size_t>(world.rank()))) {
        if (t.skips(step, i)) continue;
        dawdle(world.rank(), step, i);
        write_gradient(ddp.gradient(i), ddp.parameter(i), world.rank(), step * t.passes + number, i, number > 0);
        ddp.mark_ready(i);
      }
    };
    for (std::size_t number = 0; number + 1 < t.passes; ++number) {
      ddp.no_sync([&] {
        backward(number);
        ddp.finish();
      });
    }
    backward(t.passes - 1);
    optimizer.begin_step();
    if (by_tensor) {
      ddp.finish_launching();
      for (std::size_t i = t.specs.size(); i-- > 0;) {
        ddp.wait(i);
        use(i);
      }
      ddp.finish();
    } else {
      ddp.finish();
      for (std::size_t i = 0; i < t.specs.size(); ++i) use(i);
    }
  }
  outcome.parameters = bytes_of(t.specs.size(), [&](std::size_t i) { return ddp.parameter(i); });
  return outcome;
}

class Poison : public testing::TestWithParam<Case> {};

TEST_P(Poison, ChangesNoBitOfAReplicasCurve) {
  for (int const ranks : {1, 2, 3, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      Outcome const expected = train(world, GetParam(), false, false);
      EXPECT_NE(expected.losses.front(), expected.losses.back());
      for (bool const by_tensor : {false, true}) {
        EXPECT_EQ(train(world, GetParam(), by_tensor, true), expected) << ranks << " ranks, " << by_tensor;
      }
    });
  }
}

// Sharded results: of what compression rounds each rank gets only its own part back. What travels as it is, see
// zero_optimizer_test.
class ShardedPoison : public testing::TestWithParam<Case> {};

TEST_P(ShardedPoison, ChangesNoBitOfTheCurve) {
  for (int const ranks : {1, 2, 3}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      auto const options = [&](bool poison) {
        CompressionOptions compression = *GetParam().compression;
        compression.poison = poison;
        ZeroOptions zero;
        zero.buckets = {.limits = {500, 2000}, .stream = {}, .unused = GetParam().unused};
        zero.buckets.hook = compress_gradients(compression);
        return zero;
      };
      auto const expected = train_sharded(world, GetParam().training, options(false));
      EXPECT_EQ(train_sharded(world, GetParam().training, options(true), true), expected) << ranks << " ranks";
    });
  }
}

std::vector<Case> compressed_cases() {
  std::vector<Case> compressed = cases();
  std::erase_if(compressed, [](Case const& c) { return !c.compression; });
  return compressed;
}

std::string name_of(testing::TestParamInfo<Case> const& one) {
  return one.param.name;
}

INSTANTIATE_TEST_SUITE_P(Cases, Poison, testing::ValuesIn(cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Cases, ShardedPoison, testing::ValuesIn(compressed_cases()), name_of);

}  // namespace
}  // namespace weft::test
