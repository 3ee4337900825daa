#include "weft/bucketer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <mutex>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kSteps = 4;

void run_step(Bucketer& bucketer, int rank, std::size_t step) {
  // Another order on every rank and in every step.
  for (std::size_t const t : shuffled(bucketer.tensor_count(), 1000 * step + static_cast<std::size_t>(rank))) {
    write_gradient(bucketer, rank, step, t);
    bucketer.mark_ready(t);
  }
  bucketer.finish();
}

void expect_averages(Bucketer const& bucketer, int ranks, std::size_t step) {
  for (std::size_t t = 0; t < bucketer.tensor_count(); ++t) {
    std::span<float> const got = floats(bucketer.gradient(t));
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], average(ranks, step, t, i), 2e-5) << "tensor " << t << " element " << i << " step " << step;
    }
  }
}

class Ranks : public testing::TestWithParam<int> {};

TEST_P(Ranks, AverageAsASerialDoubleReferenceDoes) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    for (bool const overlap : {true, false}) {
      Bucketer bucketer(world, model(23, 5), {.limits = {4096, 16384}, .overlap = overlap, .stream = {}});
      for (std::size_t step = 0; step < kSteps; ++step) {
        run_step(bucketer, world.rank(), step);
        expect_averages(bucketer, world.size(), step);
      }
    }
  });
}

TEST_P(Ranks, BitsDoNotDependOnCapsOrdersOrOverlap) {
  std::mutex mutex;
  std::vector<std::vector<float>> results;
  run_thread_ranks(GetParam(), [&](Communicator& world) {
    for (std::size_t const cap : {std::size_t{1}, std::size_t{1000}, std::size_t{20000}, std::size_t{100000}, kHuge}) {
      for (bool const overlap : {true, false}) {
        Bucketer bucketer(world, model(17, 9), {.limits = {cap, cap}, .overlap = overlap, .stream = {}});
        std::vector<float> all;
        for (std::size_t step = 0; step < 3; ++step) {
          for (std::size_t const t : shuffled(17, cap + 10 * step + static_cast<std::size_t>(world.rank()))) {
            write_gradient(bucketer, world.rank(), step, t);
            bucketer.mark_ready(t);
          }
          bucketer.finish();
          std::vector<float> const one = all_gradients(bucketer);
          all.insert(all.end(), one.begin(), one.end());
        }
        std::lock_guard lock(mutex);
        results.push_back(std::move(all));
      }
    }
  });
  ASSERT_EQ(results.size(), 10U * static_cast<std::size_t>(GetParam()));
  ASSERT_FALSE(results[0].empty());
  for (std::vector<float> const& other : results) EXPECT_TRUE(same_bits(results[0], other));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Ranks, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

TEST(Bucketer, WorksAcrossProcesses) {
  expect_all_succeeded(run_forked_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, model(23, 5), {.limits = {4096, 16384}, .stream = {}});
    for (std::size_t step = 0; step < kSteps; ++step) {
      run_step(bucketer, world.rank(), step);
      expect_averages(bucketer, world.size(), step);
    }
    return 0;
  }));
}

TEST(Bucketer, MixesTypesAndOperations) {
  run_thread_ranks(3, [](Communicator& world) {
    std::vector<TensorSpec> const specs{
        {10, DataType::f64}, {5, DataType::i32}, {7, DataType::f64}, {3, DataType::bf16}};
    Bucketer bucketer(world, specs, {.op = ReduceOp::sum, .stream = {}});
    for (int step = 0; step < 3; ++step) {
      for (std::size_t const t : {2U, 0U}) {
        auto* const out = static_cast<double*>(bucketer.gradient(t).data);
        for (std::size_t i = 0; i < specs[t].count; ++i) out[i] = 0.5 * world.rank() + static_cast<double>(i * (t + 1));
        bucketer.mark_ready(t);
      }
      auto* const integers = static_cast<std::int32_t*>(bucketer.gradient(1).data);
      for (std::int32_t i = 0; i < 5; ++i) integers[i] = 100 * world.rank() + i;
      bucketer.mark_ready(1);
      auto* const brains = static_cast<BFloat16*>(bucketer.gradient(3).data);
      for (int i = 0; i < 3; ++i) brains[i] = to_bfloat16(static_cast<float>(world.rank() + i));
      bucketer.mark_ready(3);
      bucketer.finish();
      for (std::size_t const t : {0U, 2U}) {
        auto const* const sum = static_cast<double const*>(bucketer.gradient(t).data);
        for (std::size_t i = 0; i < specs[t].count; ++i)
          ASSERT_EQ(sum[i], 1.5 + 3.0 * static_cast<double>(i * (t + 1)));
      }
      auto const* const sums = static_cast<std::int32_t const*>(bucketer.gradient(1).data);
      for (std::int32_t i = 0; i < 5; ++i) ASSERT_EQ(sums[i], 300 + 3 * i);
      auto const* const brain_sums = static_cast<BFloat16 const*>(bucketer.gradient(3).data);
      for (int i = 0; i < 3; ++i) ASSERT_EQ(to_float(brain_sums[i]), static_cast<float>(3 + 3 * i));
    }
  });
}

TEST(Bucketer, NoTensorsAndOnlyEmptyTensorsAreLegal) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer none(world, {});
    none.finish();
    EXPECT_TRUE(none.timings().empty());
    EXPECT_THROW(none.mark_ready(0), Error);
    Bucketer empty(world, std::vector<TensorSpec>(3));
    for (int step = 0; step < 2; ++step) {
      empty.mark_ready(2);
      empty.mark_ready(0);
      empty.finish();
      EXPECT_EQ(empty.gradient(1).count, 0U);
    }
  });
}

TEST(Bucketer, TimingsAreOrderedAndFollowThePlan) {
  CommunicatorOptions options;
  options.emulated_link = EmulatedLink{std::chrono::milliseconds(2), 1e12};
  run_thread_ranks(
      2,
      [](Communicator& world) {
        Bucketer bucketer(world, std::vector<TensorSpec>(6, TensorSpec{1000}), {.limits = {8192, 8192}, .stream = {}});
        for (int step = 0; step < 3; ++step) {
          auto const begin = std::chrono::steady_clock::now();
          std::size_t const buckets = bucketer.plan().buckets.size();
          ASSERT_EQ(buckets, 3U);
          for (std::size_t t = 6; t-- > 0;) bucketer.mark_ready(t);
          bucketer.finish();
          auto const end = std::chrono::steady_clock::now();
          ASSERT_EQ(bucketer.timings().size(), buckets);
          auto previous = begin;
          for (BucketTiming const& timing : bucketer.timings()) {
            EXPECT_EQ(timing.bytes, 2U * 4032U);
            EXPECT_LE(begin, timing.ready);
            EXPECT_LE(timing.ready, timing.started);
            EXPECT_LE(previous, timing.started) << "one bucket after the other";
            EXPECT_GE(timing.finished - timing.started, std::chrono::milliseconds(4)) << "the link's two hops";
            EXPECT_LE(timing.finished, end);
            previous = timing.finished;
          }
        }
      },
      options);
}

TEST(Bucketer, OverlapStartsBeforeFinishAndNoOverlapDoesNot) {
  run_thread_ranks(2, [](Communicator& world) {
    for (bool const overlap : {true, false}) {
      Stream stream = Stream::cpu();
      Bucketer bucketer(world, std::vector<TensorSpec>(2, TensorSpec{1000}),
                        {.limits = {1, 1}, .overlap = overlap, .stream = stream});
      bucketer.mark_ready(1);
      stream.synchronize();  // whatever that has launched is over
      auto const last_mark = std::chrono::steady_clock::now();
      bucketer.mark_ready(0);
      bucketer.finish();
      BucketTiming const first = bucketer.timings()[0];
      EXPECT_LT(first.ready, last_mark);
      EXPECT_EQ(first.started < last_mark, overlap);
      world.barrier();
    }
  });
}

TEST(Bucketer, WaitsForSingleTensorsOnceAllIsLaunched) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, model(9, 3), {.limits = {4096, 4096}, .stream = {}});
    for (std::size_t step = 0; step < 3; ++step) {
      EXPECT_THROW(bucketer.wait(0), Error);
      for (std::size_t t = 0; t < 9; ++t) {
        write_gradient(bucketer, world.rank(), step, t);
        bucketer.mark_ready(t);
      }
      bucketer.finish_launching();
      EXPECT_THROW(bucketer.mark_ready(0), Error);
      for (std::size_t t = 0; t < 9; ++t) {
        bucketer.wait(t);
        std::span<float> const got = floats(bucketer.gradient(t));
        for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], average(2, step, t, i), 2e-5);
      }
      bucketer.finish();
    }
  });
}

TEST(Bucketer, TellsWhatHasArrived) {
  run_thread_ranks(2, [](Communicator& world) {
    Stream stream = Stream::cpu({.name = "mine", .cpu = {}});
    Bucketer bucketer(world, model(9, 3), {.limits = {4096, 4096}, .stream = stream});
    EXPECT_THROW((void)bucketer.has_arrived(0), Error) << "nothing is launched";
    std::atomic<bool> gate{false};
    stream.enqueue([&] { gate.wait(false); });
    for (std::size_t t = 0; t < 9; ++t) {
      write_gradient(bucketer, world.rank(), 0, t);
      bucketer.mark_ready(t);
    }
    bucketer.finish_launching();
    for (std::size_t t = 0; t < 9; ++t) EXPECT_FALSE(bucketer.has_arrived(t)) << "the stream is not there yet";
    EXPECT_THROW((void)bucketer.has_arrived(9), Error);
    gate = true;
    gate.notify_all();
    bucketer.wait(0);  // of the last bucket
    for (std::size_t t = 0; t < 9; ++t) EXPECT_TRUE(bucketer.has_arrived(t)) << "tensor " << t;
    bucketer.finish();
    expect_averages(bucketer, 2, 0);
  });
}

TEST(Bucketer, MarksAreCheckedAndAStepSurvivesTheMistake) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, model(5, 11));
    for (std::size_t step = 0; step < 2; ++step) {
      for (std::size_t t = 0; t < 5; ++t) {
        write_gradient(bucketer, world.rank(), step, t);
        bucketer.mark_ready(t);
        EXPECT_THROW(bucketer.mark_ready(t), Error);
      }
      EXPECT_THROW(bucketer.mark_ready(5), Error);
      EXPECT_THROW((void)bucketer.gradient(5), Error);
      EXPECT_THROW(bucketer.set_sync(false), Error);
      bucketer.finish();
      expect_averages(bucketer, 2, step);
    }
  });
}

TEST(Bucketer, TensorsWithoutGradientCountAsZero) {
  run_thread_ranks(3, [](Communicator& world) {
    Bucketer bucketer(world, std::vector<TensorSpec>(4, TensorSpec{100}), {.limits = {500, 900}, .stream = {}});
    for (int step = 0; step < 4; ++step) {
      // Tensor 0 comes on rank 0 only, 1 on none, 2 and 3 on all; stale contents must not leak into the sums.
      for (std::size_t t = 0; t < 4; ++t) {
        std::span<float> const out = floats(bucketer.gradient(t));
        std::fill(out.begin(), out.end(), 3.0F);
        if (t >= 2 || (t == 0 && world.rank() == 0)) bucketer.mark_ready(t);
      }
      bucketer.finish();
      float const expected[] = {1.0F, 0.0F, 3.0F, 3.0F};
      for (std::size_t t = 0; t < 4; ++t) {
        for (float const value : floats(bucketer.gradient(t))) ASSERT_EQ(value, expected[t]) << "tensor " << t;
      }
    }
  });
}

TEST(Bucketer, CanBeMoved) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer first(world, model(6, 2));
    first.mark_ready(5);
    Bucketer second = std::move(first);
    for (std::size_t t = 0; t < 5; ++t) second.mark_ready(t);
    second.finish();
    first = Bucketer(world, model(3, 1));
    run_step(first, world.rank(), 0);
    expect_averages(first, 2, 0);
  });
}

TEST(Bucketer, AStreamOfTheCallersIsUsed) {
  run_thread_ranks(2, [](Communicator& world) {
    Stream stream = Stream::cpu({.name = "mine", .cpu = {}});
    Bucketer bucketer(world, model(6, 2), {.stream = stream});
    std::atomic<bool> gate{false};
    stream.enqueue([&] { gate.wait(false); });
    for (std::size_t t = 0; t < 6; ++t) {
      write_gradient(bucketer, world.rank(), 0, t);
      bucketer.mark_ready(t);
    }
    bucketer.finish_launching();
    auto const opened = std::chrono::steady_clock::now();
    gate = true;
    gate.notify_all();
    bucketer.finish();
    EXPECT_GE(bucketer.timings()[0].started, opened) << "queued behind what the stream was doing";
    expect_averages(bucketer, 2, 0);
  });
}

}  // namespace
}  // namespace weft::test
