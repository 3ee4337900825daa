// Steps of data parallel training on a GPU's streams.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "bucketing/gradients.hpp"
#include "cuda/fake/on_fake_nccl.hpp"
#include "harness/ranks.hpp"
#include "weft/data_parallel.hpp"
#include "weft/error.hpp"
#include "weft/gradient_compression.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kTensors = 9;

using FakeTraining = OnFakeNccl;

/// A model whose parameters differ on every rank at first.
struct Model {
  Model(FakeGpu const& gpu, int rank) {
    for (std::size_t i = 0; i < kTensors; ++i) {
      memory.push_back(gpu.allocate(100 + 37 * i, DataType::f32));
      views.push_back(memory.back().view());
      for (std::size_t e = 0; e < views[i].count; ++e)
        static_cast<float*>(views[i].data)[e] = static_cast<float>(rank + 1);
    }
  }
  std::vector<Buffer> memory;
  std::vector<BufferView> views;
};

/// Enqueues a kernel, as it were, over a tensor's elements.
void launch(Stream& stream, BufferView const& view, std::function<float(float, std::size_t)> const& f) {
  stream.enqueue([=] {
    auto* const values = static_cast<float*>(view.data);
    for (std::size_t i = 0; i < view.count; ++i) values[i] = f(values[i], i);
  });
}

void backward(Communicator const& world, DataParallel& ddp, Stream& compute, int step) {
  for (std::size_t i = kTensors; i-- > 0;) {
    if (step % 2 == 1 && i == 4) continue;  // has no gradient: counts as zero
    auto const mine = static_cast<float>(step * 100 + world.rank());
    launch(compute, ddp.gradient(i), [=](float, std::size_t e) { return mine + static_cast<float>(e + i); });
    ddp.mark_ready(i);
  }
}

void expect_averages(Communicator const& world, DataParallel& ddp, int step) {
  for (std::size_t i = 0; i < kTensors; ++i) {
    auto const view = ddp.gradient(i);
    bool const none = step % 2 == 1 && i == 4;
    auto const mean = static_cast<float>(step * 100) + static_cast<float>(world.size() - 1) / 2.0F;
    for (std::size_t e = 0; e < view.count; ++e) {
      auto const expected = none ? 0.0F : mean + static_cast<float>(e + i);
      ASSERT_EQ(static_cast<float*>(view.data)[e], expected) << "tensor " << i << " of step " << step;
    }
  }
}

TEST_F(FakeTraining, AStepMakesNoHostSynchronisation) {
  run_ranks(3, [&](Communicator& world) {
    Stream compute = gpu.make_stream();
    Model const model(gpu, world.rank());
    DataParallel ddp(world, model.views, {.limits = {.first_bytes = 1000, .bytes = 2000}, .compute = compute});
    compute.synchronize();
    EXPECT_EQ(static_cast<float*>(model.views[8].data)[3], 1.0F);  // rank 0's
    for (int step = 0; step < 6; ++step) {
      auto const before = gpu.host_waits_here();
      backward(world, ddp, compute, step);
      ddp.finish();
      // What follows on the compute stream sees the averages.
      for (std::size_t i = 0; i < kTensors; ++i) {
        launch(compute, ddp.gradient(i), [](float value, std::size_t) { return value; });
      }
      // The first step moves the buckets.
      std::size_t const waits = gpu.host_waits_here() - before;
      ASSERT_EQ(step == 0 ? 0 : waits, 0U) << "step " << step;
      compute.synchronize();
      expect_averages(world, ddp, step);
    }
    EXPECT_GT(ddp.bucketer().plan().buckets.size(), 2U);
    EXPECT_TRUE(ddp.bucketer().timings().empty());
  });
}

TEST_F(FakeTraining, BucketsLeaveWhileBackwardGoesOnAndOnlyAfterTheirGradients) {
  run_ranks(2, [&](Communicator& world) {
    Stream compute = gpu.make_stream();
    Model const model(gpu, world.rank());
    DataParallel ddp(world, model.views,
                     {.limits = {.first_bytes = 1000, .bytes = 1000}, .rebuild = false, .compute = compute});
    compute.synchronize();
    gpu.hold(compute);  // nothing is computed yet
    auto const before = gpu.count_here("ncclAllReduce");
    backward(world, ddp, compute, 2);
    EXPECT_GT(gpu.count_here("ncclAllReduce"), before + 2);  // launched by mark_ready() alone
    ddp.finish();
    gpu.release(compute);
    compute.synchronize();
    expect_averages(world, ddp, 2);
  });
}

TEST_F(FakeTraining, BucketsAreTimedWithoutAskingTheGpu) {
  constexpr auto kLate = std::chrono::milliseconds(20);
  run_ranks(2, [&](Communicator& world) {
    Stream compute = gpu.make_stream();
    Stream const communication = gpu.make_stream();
    Model const model(gpu, world.rank());
    DataParallel ddp(world, model.views,
                     {.limits = {.first_bytes = 1000, .bytes = 2000},
                      .rebuild = false,
                      .stream = communication,
                      .compute = compute,
                      .timed = true});
    compute.synchronize();
    for (int const step : {2, 4}) {  // all tensors have gradients
      auto const at = std::chrono::steady_clock::now();
      auto const before = gpu.host_waits_here();
      gpu.hold(communication);
      Event origin;
      origin.record(compute);
      backward(world, ddp, compute, step);
      Event computed;
      computed.record(compute);
      ddp.finish();
      EXPECT_EQ(gpu.host_waits_here(), before);
      EXPECT_THROW(static_cast<void>(ddp.bucketer().timings_since(origin, at)), Error);  // it is under way
      computed.synchronize();
      std::this_thread::sleep_for(kLate);
      gpu.release(communication);
      compute.synchronize();
      auto const timings = ddp.bucketer().timings_since(origin, at);
      ASSERT_EQ(timings.size(), ddp.bucketer().plan().buckets.size());
      for (std::size_t b = 0; b < timings.size(); ++b) {
        EXPECT_EQ(timings[b].bytes, ddp.bucketer().plan().buckets[b].bytes());
        EXPECT_GE(timings[b].ready, at);
        EXPECT_GE(timings[b].started - timings[b].ready, kLate);
        EXPECT_GE(timings[b].finished, timings[b].started);
        EXPECT_GE(timings[b].started, b == 0 ? at : timings[b - 1].finished);
      }
      ddp.no_sync([&] { ddp.finish(); });
      EXPECT_TRUE(ddp.bucketer().timings_since(origin, at).empty());
    }
  });
}

TEST_F(FakeTraining, AStepCanBeCapturedAndGivesTheSameBits) {
  run_ranks(1, [&](Communicator& world) {
    Stream compute = gpu.make_stream();
    Model const model(gpu, world.rank());
    DataParallel ddp(world, model.views,
                     {.limits = {.first_bytes = 1000, .bytes = 2000}, .rebuild = false, .compute = compute});
    auto const parameters = [&](auto const& f) {
      for (std::size_t i = 0; i < kTensors; ++i) launch(compute, ddp.gradient(i), f);
    };
    auto const step = [&] {
      for (std::size_t i = kTensors; i-- > 0;) ddp.mark_ready(i);
      ddp.finish();
    };
    parameters([](float, std::size_t e) { return static_cast<float>(e); });
    compute.synchronize();
    auto const before = gpu.host_waits_here();
    gpu.begin_capture(compute);
    step();
    EXPECT_EQ(gpu.host_waits_here(), before);
    auto const graph = gpu.end_capture(compute);
    gpu.launch(graph, compute);
    compute.synchronize();
    for (std::size_t e = 0; e < 100; ++e)
      ASSERT_EQ(static_cast<float*>(ddp.gradient(0).data)[e], static_cast<float>(e));
  });
}

/// Averages of several steps, compressed; the gradients are on the GPU if `compute` is given.
std::vector<float> compressed(Communicator& world, CompressionOptions const& how, Stream* compute, FakeGpu const& gpu,
                              std::vector<float>& residual) {
  std::vector<TensorSpec> const specs = model(7, 3);
  GradientCompressor const compressor(how);
  BucketerOptions options{.limits = {.first_bytes = 1000, .bytes = 8000}, .hook = compressor.hook()};
  if (compute != nullptr) {
    options.device = kGpu;
    options.compute = *compute;
  }
  Bucketer bucketer(world, specs, options);
  std::vector<float> all;
  for (std::size_t step = 0; step < 4; ++step) {
    auto const waits = gpu.host_waits_here();
    for (std::size_t i = specs.size(); i-- > 0;) {
      auto const write = [to = floats(bucketer.gradient(i)), rank = world.rank(), step, i] {
        for (std::size_t e = 0; e < to.size(); ++e) to[e] = gradient_value(rank, step, i, e);
      };
      if (compute != nullptr) {
        compute->enqueue(write);
      } else {
        write();
      }
      bucketer.mark_ready(i);
    }
    bucketer.finish();
    EXPECT_TRUE(step < 2 || gpu.host_waits_here() == waits) << step;  // buckets, wire and residuals are made at first
    if (compute != nullptr) compute->synchronize();
    for (float const value : all_gradients(bucketer)) all.push_back(value);
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    for (float const value : compressor.residual(i)) residual.push_back(value);
  }
  return all;
}

TEST_F(FakeTraining, CompressedBucketsHaveTheBitsOfTheCpus) {
  run_ranks(2, [&](Communicator& world) {
    Stream compute = gpu.make_stream();
    for (DataType const wire : {DataType::bf16, DataType::f16}) {
      for (bool const feedback : {false, true}) {
        CompressionOptions const how{.wire = wire, .error_feedback = feedback};
        std::vector<float> on_host;
        std::vector<float> on_gpu;
        auto const expected = compressed(world, how, nullptr, gpu, on_host);
        EXPECT_EQ(compressed(world, how, &compute, gpu, on_gpu), expected) << to_string(wire) << ", " << feedback;
        EXPECT_EQ(on_gpu, on_host);
        EXPECT_EQ(on_gpu.empty(), !feedback);
      }
    }
  });
}

TEST_F(FakeTraining, EveryRankHasResidualsOfWhatIsSent) {
  run_ranks(2, [&](Communicator& world) {
    Stream compute = gpu.make_stream();
    GradientCompressor const compressor({.error_feedback = true});
    BucketerOptions options{.unused = UnusedGradients::find, .hook = compressor.hook()};
    options.device = kGpu;
    options.compute = compute;
    Bucketer bucketer(world, std::vector<TensorSpec>{{10}, {10}}, options);
    bucketer.mark_ready(0);
    if (world.rank() == 0) bucketer.mark_ready(1);
    bucketer.finish();
    compute.synchronize();
    EXPECT_EQ(compressor.residual(1).size(), 10U);
  });
}

TEST_F(FakeTraining, AHooksKernelsAreBehindTheGradientsAndBeforeWhatFollows) {
  run_ranks(2, [&](Communicator& world) {
    Stream compute = gpu.make_stream();
    BucketHook const twice = [](GradientBucket const& bucket) {
      Work sum = bucket.communicator.all_reduce(bucket.whole, bucket.whole, ReduceOp::sum, {bucket.stream, {}});
      Stream(bucket.stream).enqueue([all = floats(bucket.whole)] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        for (float& value : all) value *= 2;
      });
      return sum;
    };
    Bucketer bucketer(world, {{1000, DataType::f32}}, {.hook = twice, .device = kGpu, .compute = compute});
    std::vector<float> seen(1000);
    gpu.hold(compute);
    launch(compute, bucketer.gradient(0), [](float, std::size_t e) { return static_cast<float>(e); });
    bucketer.mark_ready(0);
    bucketer.finish();
    compute.enqueue([&seen, all = floats(bucketer.gradient(0))] { std::copy(all.begin(), all.end(), seen.begin()); });
    gpu.release(compute);
    compute.synchronize();
    for (std::size_t e = 0; e < seen.size(); ++e) ASSERT_EQ(seen[e], 4 * static_cast<float>(e));
  });
}

// The host marks all of them within microseconds.
TEST_F(FakeTraining, OptimalBucketsAreOfTheGpusTimes) {
  constexpr auto kKernel = std::chrono::milliseconds(10);
  for (bool const overlap : {true, false}) {
    run_ranks(2, [&](Communicator& world) {
      Stream compute = gpu.make_stream();
      Model const model(gpu, world.rank());
      DataParallel ddp(world, model.views,
                       {.overlap = overlap,
                        .policy = BucketPolicy::optimal,
                        .transfer_cost = TransferCost{.seconds = 0.001, .seconds_per_byte = 4e-6},
                        .compute = compute});
      EXPECT_EQ(ddp.bucketer().plan().buckets.size(), 1U);
      for (int step = 0; step < 3; ++step) {
        auto const waits = gpu.host_waits_here();
        for (std::size_t i = kTensors; i-- > 0;) {
          auto const mine = static_cast<float>(step * 100 + world.rank());
          launch(compute, ddp.gradient(i), [=](float, std::size_t e) {
            if (e == 0 && step == 0) std::this_thread::sleep_for(kKernel);
            return mine + static_cast<float>(e + i);
          });
          ddp.mark_ready(i);
        }
        ddp.finish();
        EXPECT_TRUE(step == 0 || gpu.host_waits_here() == waits) << "step " << step;
        compute.synchronize();
        if (step != 1) expect_averages(world, ddp, step);  // odd ones leave a tensor out there
      }
      // By the host's times one bucket would be best: more cost more, and nothing hides them.
      EXPECT_GT(ddp.bucketer().plan().buckets.size(), 1U);
      EXPECT_EQ(ddp.bucketer().plan().buckets.back().slots.size(), 1U);  // what comes last waits for nothing else
      EXPECT_TRUE(ddp.bucketer().timings_since(Event(), {}).empty());
    });
  }
}

TEST_F(FakeTraining, WhatTransfersCostIsMeasuredInTheGpusTime) {
  run_ranks(2, [&](Communicator& world) {
    Stream compute = gpu.make_stream();
    Model const model(gpu, world.rank());
    for (auto const collective : {BucketCollective::all_reduce, BucketCollective::reduce_scatter}) {
      Bucketer bucketer(
          world, std::vector<TensorSpec>(4, TensorSpec{1000, DataType::f32}),
          {.collective = collective, .policy = BucketPolicy::optimal, .device = kGpu, .compute = compute});
      for (std::size_t i = 4; i-- > 0;) bucketer.mark_ready(i);
      bucketer.finish();
      auto const cost = bucketer.transfer_cost();
      ASSERT_TRUE(cost.has_value());
      EXPECT_GT(cost->seconds + cost->seconds_per_byte * 16'000, 1e-7);  // a stream's task takes that long
      EXPECT_LT(cost->seconds + cost->seconds_per_byte * 16'000, 30);    // of no clock's zero
      compute.synchronize();
    }
  });
}

}  // namespace
}  // namespace weft::test
