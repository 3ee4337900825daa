#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "weft/bucketer.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

BucketerOptions with(BucketHook hook) {
  BucketerOptions options;
  options.limits = {2048, 8192};
  options.hook = std::move(hook);
  return options;
}

void step(Bucketer& bucketer, int rank, std::size_t step) {
  for (std::size_t const t : shuffled(bucketer.tensor_count(), 10 * step + static_cast<std::size_t>(rank))) {
    write_gradient(bucketer, rank, step, t);
    bucketer.mark_ready(t);
  }
  bucketer.finish();
}

Work in_two_halves(GradientBucket const& bucket) {
  CollectiveOptions const on_stream{bucket.stream, {}};
  std::size_t const half = bucket.whole.count / 2;
  BufferView const first = bucket.whole.slice(0, half);
  BufferView const second = bucket.whole.slice(half, bucket.whole.count - half);
  Work const one = bucket.communicator.all_reduce(first, first, bucket.op, on_stream);
  Work const two = bucket.communicator.all_reduce(second, second, bucket.op, on_stream);
  return enqueue_work(bucket.stream, [one, two] {
    one.wait();
    two.wait();
  });
}

class HookRanks : public testing::TestWithParam<int> {};

TEST_P(HookRanks, AllReduceInTwoHalvesHasTheSameBits) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    Bucketer bucketer(world, model(17, 5), with(in_two_halves));
    Bucketer reference(world, model(17, 5));
    for (std::size_t s = 0; s < 4; ++s) {
      step(bucketer, world.rank(), s);
      step(reference, world.rank(), s);
      ASSERT_TRUE(same_bits(all_gradients(bucketer), all_gradients(reference)));
      for (BucketTiming const& timing : bucketer.timings()) {
        EXPECT_LE(timing.ready, timing.started);
        EXPECT_LE(timing.started, timing.finished);
      }
    }
  });
}

TEST_P(HookRanks, AHookMayReduceScatterAndGatherInline) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    auto const hook = [](GradientBucket const& bucket) {
      bucket.communicator.reduce_scatter(bucket.whole, bucket.mine, bucket.op).wait();
      return Work();
    };
    BucketerOptions options = with(hook);
    options.collective = BucketCollective::reduce_scatter;
    Bucketer bucketer(world, model(17, 5), options);
    options.hook = nullptr;
    Bucketer reference(world, model(17, 5), options);
    for (std::size_t s = 0; s < 3; ++s) {
      for (std::size_t t = 0; t < 17; ++t) {
        for (Bucketer* one : {&bucketer, &reference}) {
          write_gradient(*one, world.rank(), s, t);
          one->mark_ready(t);
        }
      }
      bucketer.finish();
      reference.finish();
      ASSERT_EQ(bucketer.plan(), reference.plan());
      ASSERT_TRUE(same_bits(all_gradients(bucketer), all_gradients(reference)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, HookRanks, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

TEST(BucketerHook, SeesEveryBucketOnceInLaunchOrder) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<std::size_t> seen;
    std::vector<std::size_t> tensors;
    auto const hook = [&](GradientBucket const& bucket) {
      seen.push_back(bucket.index);
      EXPECT_EQ(bucket.whole.count, bucket.plan.buckets[bucket.index].count);
      EXPECT_EQ(bucket.whole.data, bucket.mine.data);
      EXPECT_EQ(bucket.op, ReduceOp::sum);
      for (BucketSlot const& slot : bucket.plan.buckets[bucket.index].slots) {
        tensors.push_back(slot.tensor);
        BufferView const view = bucket.whole.slice(slot.offset, slot.count);
        for (std::size_t i = 0; i < view.count; ++i) {
          EXPECT_EQ(floats(view)[i], gradient_value(world.rank(), 0, slot.tensor, i));
        }
      }
      return bucket.communicator.all_reduce(bucket.whole, bucket.whole, bucket.op, {bucket.stream, {}});
    };
    BucketerOptions options = with(hook);
    options.limits = {8192, 8192, 8192};
    options.op = ReduceOp::sum;
    options.rebuild = false;
    Bucketer bucketer(world, std::vector<TensorSpec>(6, TensorSpec{1000}), options);
    step(bucketer, world.rank(), 0);
    EXPECT_EQ(seen, (std::vector<std::size_t>{0, 1, 2}));
    EXPECT_EQ(tensors, (std::vector<std::size_t>{5, 4, 3, 2, 1, 0}));
  });
}

TEST(BucketerHook, AHookThatDoesNothingLeavesGradientsLocal) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, model(9, 3), with([](GradientBucket const&) { return Work(); }));
    for (std::size_t s = 0; s < 3; ++s) {
      step(bucketer, world.rank(), s);
      for (std::size_t t = 0; t < 9; ++t) {
        std::span<float> const got = floats(bucketer.gradient(t));
        for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], gradient_value(world.rank(), s, t, i));
      }
      for (BucketTiming const& timing : bucketer.timings()) EXPECT_LE(timing.started, timing.finished);
    }
  });
}

/// Rank 1's hook fails in bucket 2 in one way or another; every rank must learn it soon.
void expect_failure_everywhere(std::function<Work(GradientBucket const&)> const& failing, ErrorCode at_rank_1) {
  run_thread_ranks(3, [&](Communicator& world) {
    auto const hook = [&](GradientBucket const& bucket) {
      if (world.rank() == 1 && bucket.index == 2) return failing(bucket);
      return bucket.communicator.all_reduce(bucket.whole, bucket.whole, bucket.op, {bucket.stream, {}});
    };
    BucketerOptions options = with(hook);
    options.limits = {1, 1};
    Bucketer bucketer(world, std::vector<TensorSpec>(5, TensorSpec{100}), options);
    auto const begin = std::chrono::steady_clock::now();
    try {
      step(bucketer, world.rank(), 0);
      ADD_FAILURE() << "rank " << world.rank() << " was not told";
    } catch (Error const& error) {
      std::string const text = error.what();
      EXPECT_NE(text.find("bucket 2 of 5"), std::string::npos) << text;
      EXPECT_NE(text.find("hook: no luck"), std::string::npos) << text;
      EXPECT_EQ(error.code(), world.rank() == 1 ? at_rank_1 : ErrorCode::aborted) << text;
      if (world.rank() != 1) {
        EXPECT_NE(text.find("rank 1: bucket 2"), std::string::npos) << text;
      }
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kNoticed);
    EXPECT_THROW(bucketer.mark_ready(0), Error);
  });
}

TEST(BucketerHook, WhatItThrowsNamesTheBucketOnEveryRank) {
  expect_failure_everywhere([](GradientBucket const&) -> Work { throw std::runtime_error("no luck"); },
                            ErrorCode::aborted);
  expect_failure_everywhere([](GradientBucket const&) -> Work { throw Error(ErrorCode::unsupported, "no luck"); },
                            ErrorCode::unsupported);
}

TEST(BucketerHook, AFailedWorkNamesTheBucketOnEveryRank) {
  expect_failure_everywhere(
      [](GradientBucket const& bucket) {
        return enqueue_work(bucket.stream, [] { throw std::runtime_error("no luck"); });
      },
      ErrorCode::aborted);
}

TEST(BucketerHook, RanksMustAllHaveOne) {
  run_thread_ranks(2, [](Communicator& world) {
    try {
      Bucketer bucketer(world, model(3, 1), with(world.rank() == 1 ? BucketHook(in_two_halves) : BucketHook()));
      ADD_FAILURE() << "accepted";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_NE(std::string(error.what()).find("options.hook is given there"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace weft::test
