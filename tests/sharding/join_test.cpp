#include <unistd.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <stdexcept>
#include <string>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "runtime/error_matchers.hpp"
#include "weft/data_parallel.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kTensors = 7;

struct Model {
  explicit Model(int rank) {
    for (TensorSpec const& spec : model(kTensors, 11)) {
      memory.push_back(Buffer::host(spec.count, spec.dtype));
      views.push_back(memory.back().view());
      for (float& value : floats(views.back())) value = static_cast<float>(rank + 1);
    }
  }
  std::vector<Buffer> memory;
  std::vector<BufferView> views;
};

void descend(DataParallel& ddp) {
  for (std::size_t p = 0; p < ddp.parameter_count(); ++p) {
    for (std::size_t i = 0; i < ddp.parameter(p).count; ++i) {
      floats(ddp.parameter(p))[i] -= 0.5F * floats(ddp.gradient(p))[i];
    }
  }
}

/// What rank `rank` gives in `step`, which it may have in several micro-steps.
float whole_gradient(int rank, std::size_t step, std::size_t tensor, std::size_t i) {
  return gradient_value(rank, step, tensor, i);
}

void backward(DataParallel& ddp, int rank, std::size_t step, bool add, float share) {
  for (std::size_t const p : shuffled(kTensors, 50 * step + static_cast<std::size_t>(rank))) {
    std::span<float> const out = floats(ddp.gradient(p));
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = (add ? out[i] : 0.0F) + share * whole_gradient(rank, step, p, i);
    ddp.mark_ready(p);
  }
}

/// One element of the model after all steps, in double: as many ranks count as have data, or all.
double serial(std::vector<std::size_t> const& steps, JoinDivisor divisor, std::size_t tensor, std::size_t i) {
  double x = 1;  // rank 0's start
  std::size_t const most = *std::max_element(steps.begin(), steps.end());
  for (std::size_t step = 0; step < most; ++step) {
    double sum = 0;
    double active = 0;
    for (std::size_t r = 0; r < steps.size(); ++r) {
      if (steps[r] <= step) continue;
      sum += whole_gradient(static_cast<int>(r), step, tensor, i);
      ++active;
    }
    x -= 0.5 * sum / (divisor == JoinDivisor::all_ranks ? static_cast<double>(steps.size()) : active);
  }
  return x;
}

Work in_two_halves(GradientBucket const& bucket) {
  CollectiveOptions const on_stream{bucket.stream, {}};
  std::size_t const half = bucket.whole.count / 2;
  for (BufferView const& part : {bucket.whole.slice(0, half), bucket.whole.slice(half, bucket.whole.count - half)}) {
    Work work = bucket.communicator.all_reduce(part, part, bucket.op, on_stream);
    if (part.data != bucket.whole.data) return work;  // the stream's last
  }
  return {};
}

struct Way {
  JoinDivisor divisor;
  bool accumulate;
  bool shadow_updates;
  BucketerOptions options;
};

void run(std::vector<std::size_t> const& steps, Way const& way) {
  run_thread_ranks(static_cast<int>(steps.size()), [&](Communicator& world) {
    Model memory(world.rank());
    DataParallel ddp(world, memory.views, way.options);
    auto const mine = [&] {
      for (std::size_t step = 0; step < steps[static_cast<std::size_t>(world.rank())]; ++step) {
        if (way.accumulate) ddp.no_sync([&] { backward(ddp, world.rank(), step, false, 0.5F); });
        backward(ddp, world.rank(), step, way.accumulate, way.accumulate ? 0.5F : 1.0F);
        ddp.finish();
        descend(ddp);
      }
    };
    ddp.join({way.divisor, false}, mine, way.shadow_updates ? [&] { descend(ddp); } : std::function<void()>());
    for (std::size_t p = 0; p < kTensors; ++p) {
      for (std::size_t i = 0; i < ddp.parameter(p).count; ++i) {
        ASSERT_NEAR(floats(ddp.parameter(p))[i], serial(steps, way.divisor, p, i), 2e-4) << "tensor " << p;
      }
    }
    // Replicas are equal to the bit, and the next ordinary step works.
    for (std::size_t p = 0; p < kTensors; ++p) {
      std::vector<float> here(floats(ddp.parameter(p)).begin(), floats(ddp.parameter(p)).end());
      std::vector<float> zeros = here;
      world.broadcast(BufferView(std::span(zeros)), 0).wait();
      ASSERT_TRUE(same_bits(here, zeros));
    }
    backward(ddp, world.rank(), 77, false, 1.0F);
    ddp.finish();
    for (std::size_t p = 0; p < kTensors; ++p) {
      for (std::size_t i = 0; i < ddp.gradient(p).count; ++i) {
        ASSERT_NEAR(floats(ddp.gradient(p))[i], average(world.size(), 77, p, i), 2e-5);
      }
    }
  });
}

TEST(Join, AnyNumbersOfStepsFollowASerialRunAndHangNowhere) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::size_t> steps(1 + random() % 4);
    for (std::size_t& one : steps) one = random() % 5;
    Way way{random() % 2 == 0 ? JoinDivisor::all_ranks : JoinDivisor::active_ranks,
            random() % 2 == 0,
            random() % 2 == 0,
            {}};
    way.options.limits = {2048, 8192};
    way.options.rebuild = random() % 3 != 0;
    way.options.overlap = random() % 3 != 0;
    way.options.policy = random() % 3 == 0 ? BucketPolicy::optimal : BucketPolicy::caps;
    if (random() % 3 == 0) way.options.hook = in_two_halves;
    way.options.unused = static_cast<UnusedGradients>(random() % 3);
    SCOPED_TRACE(testing::Message() << "round " << round << ", steps " << testing::PrintToString(steps));
    run(steps, way);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Join, WithoutUnevennessBitsAreThoseOfAnOrdinaryRun) {
  run_thread_ranks(3, [](Communicator& world) {
    std::vector<float> results[2];
    for (bool const joined : {false, true}) {
      Model memory(world.rank());
      DataParallel ddp(world, memory.views);
      auto const steps = [&] {
        for (std::size_t step = 0; step < 3; ++step) {
          backward(ddp, world.rank(), step, false, 1.0F);
          ddp.finish();
          descend(ddp);
        }
      };
      if (joined) {
        ddp.join({JoinDivisor::active_ranks, false}, steps);
      } else {
        steps();
      }
      results[joined ? 1 : 0] = all_gradients(ddp.bucketer());
    }
    EXPECT_TRUE(same_bits(results[0], results[1]));
  });
}

TEST(Join, WhatMicroStepsLeftUnsentGoesWithTheFirstShadowedStep) {
  run_thread_ranks(3, [](Communicator& world) {
    Buffer const parameter = Buffer::host(10, DataType::f32);
    DataParallel ddp(world, {parameter.view()});
    std::vector<float> seen;
    auto const fill = [&](float value) {
      for (float& one : floats(ddp.gradient(0))) one = value;
      ddp.mark_ready(0);
    };
    auto const steps = [&] {
      if (world.rank() == 0) {
        ddp.no_sync([&] { fill(6.0F); });
      } else {
        for (int step = 0; step < world.rank(); ++step) {
          fill(3.0F);
          ddp.finish();
          seen.push_back(floats(ddp.gradient(0))[4]);
        }
      }
    };
    ddp.join({JoinDivisor::active_ranks, false}, steps, [&] { seen.push_back(floats(ddp.gradient(0))[4]); });
    // All three in the first step, rank 2 alone in the second.
    EXPECT_EQ(seen, (std::vector<float>{4.0F, 3.0F}));
  });
}

// Rank 0 takes part in both steps, and updates in one: it is not the one to level by.
TEST(Join, WhoLeftMicroStepsUnsentIsLevelledLikeOthers) {
  run_thread_ranks(3, [](Communicator& world) {
    Buffer const parameter = Buffer::host(10, DataType::f32);
    std::ranges::fill(floats(parameter.view()), 100.0F);
    DataParallel ddp(world, {parameter.view()});
    auto const fill = [&](float value) {
      std::ranges::fill(floats(ddp.gradient(0)), value);
      ddp.mark_ready(0);
    };
    auto const steps = [&] {
      for (int step = 0; step < std::array{1, 2, 0}.at(static_cast<std::size_t>(world.rank())); ++step) {
        fill(3.0F);
        ddp.finish();
        for (float& one : floats(parameter.view())) one -= floats(ddp.gradient(0))[0];
      }
      if (world.rank() == 0) ddp.no_sync([&] { fill(6.0F); });
    };
    ddp.join({JoinDivisor::active_ranks, false}, steps);
    EXPECT_EQ(floats(parameter.view())[4], 100.0F - 3.0F - 4.5F);
  });
}

TEST(Join, EarlyTerminationThrowsOnEveryRankBeforeAnythingIsSent) {
  run_thread_ranks(3, [](Communicator& world) {
    Model memory(world.rank());
    DataParallel ddp(world, memory.views);
    std::size_t made = 0;
    auto const steps = [&] {
      for (std::size_t step = 0; step < (world.rank() == 1 ? 2U : 4U); ++step) {
        backward(ddp, world.rank(), step, false, 1.0F);
        ddp.finish();
        ++made;
      }
    };
    try {
      ddp.join({JoinDivisor::all_ranks, true}, steps);
      ADD_FAILURE() << "rank " << world.rank() << " was not told";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_NE(std::string(error.what()).find("1 of 3 ranks ran out of data"), std::string::npos) << error.what();
    }
    EXPECT_EQ(made, 2U);
    backward(ddp, world.rank(), 9, false, 1.0F);  // goes on
    ddp.finish();
    EXPECT_NEAR(floats(ddp.gradient(3))[0], average(3, 9, 3, 0), 2e-5);
    // Nobody is told anything when all end together.
    ddp.join({JoinDivisor::all_ranks, true}, [&] {
      backward(ddp, world.rank(), 10, false, 1.0F);
      ddp.finish();
    });
  });
}

TEST(Join, AThrowingStepEndsTheJoin) {
  run_thread_ranks(2, [](Communicator& world) {
    Model memory(world.rank());
    DataParallel ddp(world, memory.views);
    EXPECT_THROW(ddp.join({}, [] { throw std::runtime_error("bad batch"); }), std::runtime_error);
    EXPECT_FALSE(ddp.bucketer().plan().buckets.empty());
    EXPECT_THROW((void)ddp.bucketer().shadow_step(), Error);
    ddp.join({}, [&] {
      backward(ddp, world.rank(), 1, false, 1.0F);
      ddp.finish();
    });
  });
}

TEST(Join, MistakesAreRefused) {
  run_thread_ranks(1, [](Communicator& world) {
    Bucketer integers(world, std::vector<TensorSpec>{{4, DataType::i32}});
    EXPECT_THROW(integers.begin_join({JoinDivisor::active_ranks, false}), Error);
    EXPECT_THROW(integers.begin_join({static_cast<JoinDivisor>(5), false}), Error);
    integers.begin_join();
    EXPECT_THROW(integers.begin_join(), Error);
    integers.mark_ready(0);
    EXPECT_THROW((void)integers.shadow_step(), Error);
    integers.finish();
    EXPECT_FALSE(integers.shadow_step());
    EXPECT_EQ(integers.end_join(), 1U);
    EXPECT_EQ(integers.end_join(), 0U);
    integers.set_sync(false);
    EXPECT_THROW(integers.begin_join(), Error);
  });
}

// Each rank would divide by another number.
TEST(Join, OptionsThatDifferAreNamedOnEveryRank) {
  run_thread_ranks(3, [](Communicator& world) {
    Bucketer bucketer(world, std::vector<TensorSpec>{{4, DataType::f32}});
    expect_error(ErrorCode::mismatch, {"rank 2 has divisor active_ranks", "rank 0 divisor all_ranks"}, [&] {
      bucketer.begin_join({world.rank() == 2 ? JoinDivisor::active_ranks : JoinDivisor::all_ranks, false});
    });
    expect_error(ErrorCode::mismatch, {"rank 1 has", "throw_on_early_termination true"}, [&] {
      bucketer.begin_join({JoinDivisor::all_ranks, world.rank() == 1});
    });
    bucketer.begin_join();
    EXPECT_FALSE(bucketer.shadow_step());
  });
}

TEST(Join, AKilledRankIsNoticedByShadows) {
  std::vector<RankExit> const exits = run_forked_ranks(3, [](Communicator& world) {
    Buffer const parameter = Buffer::host(10, DataType::f32);
    DataParallel ddp(world, {parameter.view()});
    try {
      ddp.join({}, [&] {
        for (int step = 0; step < world.rank() * 3; ++step) {
          if (world.rank() == 2 && step == 4) _exit(9);
          ddp.mark_ready(0);
          ddp.finish();
        }
      });
    } catch (Error const& error) {
      return error.code() == ErrorCode::peer_lost ? 0 : 2;
    }
    return 3;
  });
  EXPECT_EQ(exits[0].code, 0) << exits[0].output;
  EXPECT_EQ(exits[1].code, 0) << exits[1].output;
  EXPECT_FALSE(exits[0].timed_out || exits[1].timed_out);
}

}  // namespace
}  // namespace weft::test
