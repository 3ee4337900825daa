#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "weft/bucketer.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kTensors = 15;

BucketerOptions with(UnusedGradients unused) {
  BucketerOptions options;
  options.limits = {2048, 8192};
  options.unused = unused;
  return options;
}

/// Whether `rank` has a gradient of `tensor` in micro-step `pass` of `step`: any rank can tell for any other.
bool is_used(int rank, std::size_t step, std::size_t pass, std::size_t tensor) {
  auto const bits = static_cast<std::uint64_t>(gradient_value(rank, step * 10 + pass, tensor, 999) * 1e5F + 1e6F);
  return tensor % 5 != 0 && bits % 3 == 0;  // every fifth tensor on no rank
}

float stale(int rank, std::size_t tensor) {
  return static_cast<float>(1000 + 10 * rank) + static_cast<float>(tensor);
}

struct Way {
  std::size_t passes;
  bool tell;  ///< mark_unused() what has no gradient
  bool piecewise;
  bool overlap;
};

/// Runs random steps and compares with a serial reference.
void run_random_steps(Communicator& world, UnusedGradients unused, Way const& way) {
  BucketerOptions options = with(unused);
  options.overlap = way.overlap;
  Bucketer bucketer(world, model(kTensors, 3), options);
  std::size_t nowhere = 0;
  for (std::size_t step = 0; step < 5; ++step) {
    for (std::size_t t = 0; t < kTensors; ++t) {
      std::span<float> const values = floats(bucketer.gradient(t));
      std::fill(values.begin(), values.end(), stale(world.rank(), t));
    }
    for (std::size_t pass = 0; pass < way.passes; ++pass) {
      bucketer.set_sync(pass + 1 == way.passes);
      for (std::size_t const t : shuffled(kTensors, 100 * step + 10 * pass + static_cast<std::size_t>(world.rank()))) {
        if (is_used(world.rank(), step, pass, t)) {
          bool first = true;
          for (std::size_t before = 0; before < pass; ++before)
            first = first && !is_used(world.rank(), step, before, t);
          std::span<float> const out = floats(bucketer.gradient(t));
          for (std::size_t i = 0; i < out.size(); ++i) {
            out[i] = (first ? 0.0F : out[i]) + gradient_value(world.rank(), step + pass, t, i);
          }
          bucketer.mark_ready(t);
        } else if (way.tell) {
          bucketer.mark_unused(t);
        }
      }
      if (pass + 1 < way.passes) bucketer.finish();
    }
    if (way.piecewise) bucketer.finish_launching();
    auto const check = [&](std::size_t t) {
      bool anywhere = false;
      for (int r = 0; r < world.size(); ++r) {
        for (std::size_t pass = 0; pass < way.passes; ++pass) anywhere = anywhere || is_used(r, step, pass, t);
      }
      ASSERT_EQ(bucketer.has_gradient(t), anywhere || unused == UnusedGradients::zero) << "tensor " << t;
      nowhere += anywhere ? 0 : 1;
      std::span<float> const got = floats(bucketer.gradient(t));
      for (std::size_t i = 0; i < got.size(); ++i) {
        double sum = 0;
        for (int r = 0; r < world.size(); ++r) {
          for (std::size_t pass = 0; pass < way.passes; ++pass) {
            if (is_used(r, step, pass, t)) sum += gradient_value(r, step + pass, t, i);
          }
        }
        bool const kept = !anywhere && unused != UnusedGradients::zero;
        ASSERT_NEAR(got[i], kept ? stale(world.rank(), t) : sum / world.size(), 5e-5) << "tensor " << t << " at " << i;
      }
    };
    if (way.piecewise) {
      for (std::size_t const t : shuffled(kTensors, step)) {
        bucketer.wait(t);
        check(t);
      }
    }
    bucketer.finish();
    for (std::size_t t = 0; t < kTensors; ++t) check(t);
  }
  EXPECT_GE(nowhere, 15U);
}

class UnusedRanks : public testing::TestWithParam<int> {};

TEST_P(UnusedRanks, AveragesWhereAnyRankHasAGradientAndKeepsTheRest) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    for (UnusedGradients const unused : {UnusedGradients::zero, UnusedGradients::find}) {
      for (Way const& way : {Way{1, false, false, true}, Way{1, true, true, true}, Way{3, false, true, true},
                             Way{3, true, false, true}, Way{2, false, true, false}}) {
        run_random_steps(world, unused, way);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, UnusedRanks, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

/// Rank r has gradients of tensors 0 and 1 + r; nobody of 3.
void mark_fixed(Bucketer& bucketer, int rank, std::size_t step) {
  for (std::size_t const t : {std::size_t{0}, std::size_t{1} + static_cast<std::size_t>(rank)}) {
    write_gradient(bucketer, rank, step, t);
    bucketer.mark_ready(t);
  }
}

std::string message_of(std::function<void()> const& action) {
  try {
    action();
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(BucketerUnused, WhatIsFixedIsLearntAndBucketsNoLongerWait) {
  run_thread_ranks(2, [](Communicator& world) {
    Stream stream = Stream::cpu();
    BucketerOptions options = with(UnusedGradients::fixed);
    options.limits = {1, 1};
    options.stream = stream;
    Bucketer bucketer(world, std::vector<TensorSpec>(4, TensorSpec{100}), options);
    for (std::size_t step = 0; step < 4; ++step) {
      for (float& value : floats(bucketer.gradient(3))) value = stale(world.rank(), 3);
      mark_fixed(bucketer, world.rank(), step);
      if (step > 0) stream.synchronize();  // whatever marks have launched is over
      auto const before_finish = std::chrono::steady_clock::now();
      bucketer.finish();
      for (std::size_t b = 0; step > 0 && b < 4; ++b) {
        EXPECT_LT(bucketer.timings()[b].started, before_finish) << "bucket " << b << " waited for finish()";
      }
      for (std::size_t i = 0; i < 100; ++i) {
        ASSERT_NEAR(floats(bucketer.gradient(0))[i], average(2, step, 0, i), 2e-5);
        ASSERT_NEAR(floats(bucketer.gradient(1))[i], gradient_value(0, step, 1, i) / 2, 2e-5);
        ASSERT_NEAR(floats(bucketer.gradient(2))[i], gradient_value(1, step, 2, i) / 2, 2e-5);
        ASSERT_EQ(floats(bucketer.gradient(3))[i], stale(world.rank(), 3));
      }
      EXPECT_TRUE(bucketer.has_gradient(0) && bucketer.has_gradient(1) && bucketer.has_gradient(2));
      EXPECT_FALSE(bucketer.has_gradient(3));
    }
  });
}

TEST(BucketerUnused, AChangeOfWhatIsFixedNamesTheTensorAndHangsNobody) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, std::vector<TensorSpec>(4, TensorSpec{100}), with(UnusedGradients::fixed));
    mark_fixed(bucketer, world.rank(), 0);
    bucketer.finish();
    EXPECT_NE(message_of([&] { bucketer.mark_ready(3); }).find("mark_ready(3): tensor 3 had no gradient in the first"),
              std::string::npos);
    bucketer.mark_unused(3);  // nothing new
    write_gradient(bucketer, world.rank(), 1, 0);
    bucketer.mark_ready(0);
    if (world.rank() == 1) {  // leaves out tensor 2
      EXPECT_NE(message_of([&] { bucketer.finish(); }).find("tensor 2 got no gradient"), std::string::npos);
    } else {
      write_gradient(bucketer, 0, 1, 1);
      bucketer.mark_ready(1);
      bucketer.finish();
    }
    for (std::size_t i = 0; i < 100; ++i) {
      ASSERT_NEAR(floats(bucketer.gradient(0))[i], average(2, 1, 0, i), 2e-5);
      ASSERT_EQ(floats(bucketer.gradient(2))[i], 0.0F);
    }
    mark_fixed(bucketer, world.rank(), 2);  // goes on
    bucketer.finish();
    ASSERT_NEAR(floats(bucketer.gradient(0))[7], average(2, 2, 0, 7), 2e-5);
  });
}

TEST(BucketerUnused, MicroStepsCountForWhatIsFixed) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, std::vector<TensorSpec>(3, TensorSpec{100}), with(UnusedGradients::fixed));
    for (std::size_t step = 0; step < 3; ++step) {
      bucketer.set_sync(false);
      write_gradient(bucketer, world.rank(), step, 0);
      bucketer.mark_ready(0);
      bucketer.finish();
      bucketer.set_sync(true);
      write_gradient(bucketer, world.rank(), step, 1);
      bucketer.mark_ready(1);
      bucketer.finish();
      EXPECT_TRUE(bucketer.has_gradient(0));
      EXPECT_FALSE(bucketer.has_gradient(2));
      ASSERT_NEAR(floats(bucketer.gradient(0))[5], average(2, step, 0, 5), 2e-5);
      ASSERT_NEAR(floats(bucketer.gradient(1))[5], average(2, step, 1, 5), 2e-5);
    }
  });
}

// Buckets are here before ranks know whose gradients are.
TEST(BucketerUnused, WhatWouldBeWaitedForHasNotArrived) {
  std::atomic<bool> asked = false;
  run_thread_ranks(2, [&](Communicator& world) {
    BucketerOptions options = with(UnusedGradients::find);
    options.limits = {1, 1};
    options.rebuild = false;
    Bucketer bucketer(world, std::vector<TensorSpec>(2, TensorSpec{100}), options);
    bucketer.mark_unused(1);
    bucketer.mark_ready(0);
    if (world.rank() == 0) {
      bucketer.finish_launching();
      while (!bucketer.has_arrived(0)) std::this_thread::yield();
      EXPECT_FALSE(bucketer.has_arrived(1)) << "rank 1 has not said yet whether it has a gradient";
      asked = true;
      asked.notify_one();
    } else {
      asked.wait(false);
    }
    bucketer.finish();
    EXPECT_FALSE(bucketer.has_gradient(1));
  });
}

TEST(BucketerUnused, AnUnknownWayIsRefused) {
  run_thread_ranks(1, [](Communicator& world) {
    EXPECT_THROW(Bucketer(world, model(3, 1), with(static_cast<UnusedGradients>(9))), Error);
  });
}

}  // namespace
}  // namespace weft::test
