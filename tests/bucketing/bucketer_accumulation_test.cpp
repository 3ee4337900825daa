#include <gtest/gtest.h>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "weft/bucketer.hpp"
#include "weft/data_parallel.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kTensors = 9;
constexpr std::size_t kMicroSteps = 3;

// Writes in the first micro-step and adds in the others, as a trainer does.
void micro_step(Bucketer& bucketer, int rank, std::size_t step, std::size_t micro) {
  for (std::size_t const t : shuffled(kTensors, 10 * micro + static_cast<std::size_t>(rank))) {
    std::span<float> const out = floats(bucketer.gradient(t));
    for (std::size_t i = 0; i < out.size(); ++i) {
      float const value = gradient_value(rank, step * kMicroSteps + micro, t, i);
      out[i] = micro == 0 ? value : out[i] + value;
    }
    bucketer.mark_ready(t);
  }
}

double accumulated_average(int ranks, std::size_t step, std::size_t t, std::size_t i) {
  double sum = 0;
  for (std::size_t micro = 0; micro < kMicroSteps; ++micro) sum += average(ranks, step * kMicroSteps + micro, t, i);
  return sum;
}

enum class Ending { finish, none };

class Accumulation : public testing::TestWithParam<Ending> {};

TEST_P(Accumulation, SendsTheSumsOfAllMicroSteps) {
  run_thread_ranks(3, [](Communicator& world) {
    Bucketer bucketer(world, model(kTensors, 31), {.limits = {4096, 4096}, .stream = {}});
    for (std::size_t step = 0; step < 3; ++step) {
      for (std::size_t micro = 0; micro < kMicroSteps; ++micro) {
        bool const last = micro + 1 == kMicroSteps;
        bucketer.set_sync(last);
        EXPECT_EQ(bucketer.sync(), last);
        micro_step(bucketer, world.rank(), step, micro);
        if (last || GetParam() == Ending::finish) bucketer.finish();
        if (!last && GetParam() == Ending::finish) {
          EXPECT_TRUE(bucketer.timings().empty());
        }
      }
      EXPECT_EQ(bucketer.timings().empty(), false);
      for (std::size_t t = 0; t < kTensors; ++t) {
        std::span<float> const got = floats(bucketer.gradient(t));
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], accumulated_average(3, step, t, i), 1e-4);
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(MicroStepsEndWith, Accumulation, testing::Values(Ending::finish, Ending::none),
                         [](auto const& value) { return value.param == Ending::finish ? "Finish" : "Nothing"; });

TEST(BucketerAccumulation, MicroStepsSendNothing) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, model(kTensors, 31));
    // Rank 1 makes twice as many: were anything sent, ranks would disagree or wait.
    bucketer.set_sync(false);
    for (int i = 0; i <= world.rank(); ++i) {
      for (std::size_t t = 0; t < kTensors; ++t) bucketer.mark_ready(t);
      bucketer.finish_launching();
      bucketer.finish();
    }
    bucketer.set_sync(true);
    bucketer.finish();
  });
}

TEST(BucketerAccumulation, AGradientOfAnEarlierMicroStepIsKept) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, std::vector<TensorSpec>(3, TensorSpec{50}), {.rebuild = false, .stream = {}});
    for (int step = 0; step < 2; ++step) {
      for (std::size_t t = 0; t < 3; ++t) {
        std::span<float> const out = floats(bucketer.gradient(t));
        std::fill(out.begin(), out.end(), 8.0F);
      }
      bucketer.set_sync(false);
      bucketer.mark_ready(0);
      bucketer.finish();
      bucketer.set_sync(true);
      bucketer.mark_ready(1);
      bucketer.finish();
      float const expected[] = {8.0F, 8.0F, 0.0F};
      for (std::size_t t = 0; t < 3; ++t) {
        for (float const value : floats(bucketer.gradient(t))) ASSERT_EQ(value, expected[t]) << "tensor " << t;
      }
    }
  });
}

}  // namespace
}  // namespace weft::test
