// ZeroOptimizer on a GPU's streams: the CPU's bits, and nobody waits.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "cuda/fake/fake_sharded.hpp"
#include "sharding/zero_training.hpp"
#include "weft/memory.hpp"

namespace weft::test {
namespace {

using FakeZero = FakeSharded;

/// Parameters on the GPU with the values of some on the host.
class Copies {
 public:
  Copies(FakeGpu const& gpu, Parameters const& from) {
    for (BufferView const& view : from.views()) views_.push_back(copied_to(gpu, memory_, view));
  }
  [[nodiscard]] std::vector<ParameterGroup> groups(Training const& t) const {
    auto const middle = views_.begin() + static_cast<std::ptrdiff_t>(views_.size() / 2);
    return {{{views_.begin(), middle}, t.first}, {{middle, views_.end()}, t.second}};
  }

 private:
  std::vector<Buffer> memory_;
  std::vector<BufferView> views_;
};

/// A step's gradients: what backward would write.
using Backward = std::function<void(BufferView gradient, BufferView parameter, std::size_t step, std::size_t tensor)>;

/// As train_sharded(), on the GPU.
std::vector<std::byte> train_on_gpu(Communicator& world, FakeGpu& gpu, Training const& t, ZeroOptions options,
                                    Backward const& backward, std::function<void(ZeroOptimizer&, Stream&)> after = {}) {
  options.optimizer = t.settings;
  Stream compute = gpu.make_stream();
  options.buckets.compute = compute;
  Parameters const values(t.specs);
  Copies const parameters(gpu, values);
  ZeroOptimizer zero(world, parameters.groups(t), options);
  for (std::size_t step = 0; step < t.steps; ++step) {
    auto const waits = gpu.host_waits_here();
    for (std::size_t pass = 0; pass < t.passes; ++pass) {
      auto const run = [&] {
        for (std::size_t i = 0; i < t.specs.size(); ++i) zero.wait_parameter(i);
        for (std::size_t const i : shuffled(t.specs.size(), 7)) {
          if (t.skips(step, i)) continue;
          launch(gpu, compute, [=, &backward, to = zero.gradient(i), from = zero.parameter(i)] {
            backward(to, from, step * t.passes + pass, i);
          });
          zero.mark_ready(i);
        }
        zero.step();
      };
      if (pass + 1 < t.passes) {
        zero.no_sync(run);
      } else {
        run();
      }
    }
    // The first one may move buckets, and allocates states.
    EXPECT_TRUE(step == 0 || gpu.host_waits_here() == waits) << "step " << step;
    if (after) after(zero, compute);
  }
  zero.wait_parameters();
  compute.synchronize();
  return bytes_of(t.specs.size(), [&](std::size_t i) { return zero.parameter(i); });
}

Backward backward_of(Training const& t, int rank) {
  return [passes = t.passes, rank](BufferView gradient, BufferView parameter, std::size_t step, std::size_t tensor) {
    write_gradient(gradient, parameter, rank, step, tensor, step % passes > 0);
  };
}

TEST_F(FakeZero, HasTheBitsOfTheCpuWithoutWaiting) {
  Training const training{
      .specs = model(15, 50), .first = AdamWOptions{.lr = 0.01}, .second = SgdOptions{.lr = 0.1, .momentum = 0.9}};
  for (int const ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](Communicator& world) {
      for (ZeroStage const stage : {ZeroStage::optimizer_states, ZeroStage::gradients}) {
        for (std::size_t const cap : {1U, 9000U, 1U << 20U}) {
          for (bool const rebuild : {true, false}) {
            ZeroOptions options{.stage = stage};
            options.buckets.limits = {cap, cap, 1};
            options.buckets.rebuild = rebuild;
            EXPECT_EQ(train_on_gpu(world, gpu, training, options, backward_of(training, world.rank())),
                      train_sharded(world, training, options))
                << ranks << " ranks, stage " << static_cast<int>(stage) << ", cap " << cap << ", rebuild " << rebuild;
          }
        }
      }
    });
  }
}

// Whose norms are of whole tensors: summed over ranks, where the GPU has them.
TEST_F(FakeZero, LambIsThatOfTheCpuWithoutWaiting) {
  Training const training{.specs = model(15, 56),
                          .first = LambOptions{.lr = 0.01, .weight_decay = 0.1},
                          .second = AdamWOptions{.lr = 0.01}};
  for (int const ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](Communicator& world) {
      for (ZeroStage const stage : {ZeroStage::optimizer_states, ZeroStage::gradients}) {
        for (bool const clips : {false, true}) {
          ZeroOptions options{.stage = stage};
          options.buckets.limits = {3000, 9000, 1000};
          if (clips) options.gradients.max_norm = 0.5;
          expect_near(train_on_gpu(world, gpu, training, options, backward_of(training, world.rank())),
                      train_sharded(world, training, options), 1e-6);
        }
      }
    });
  }
}

TEST_F(FakeZero, SurvivesUnusedGradientsAccumulationAndSixteenBitParameters) {
  for (std::size_t const passes : {1U, 3U}) {
    Training training{.specs = model(13, 51), .first = AdamWOptions{.lr = 0.01}, .second = LionOptions{.lr = 0.01}};
    for (std::size_t i = 0; i < training.specs.size() && passes == 1; i += 3) training.specs[i].dtype = DataType::bf16;
    training.unused = passes == 1;
    training.passes = passes;
    training.settings.zero_gradients = true;
    run_ranks(2, [&](Communicator& world) {
      for (ZeroStage const stage : {ZeroStage::optimizer_states, ZeroStage::gradients}) {
        for (bool const overlap : {true, false}) {
          ZeroOptions options{.stage = stage};
          options.buckets.limits = {3000, 9000, 1000};
          options.buckets.overlap = overlap;
          for (auto const unused : {UnusedGradients::zero, UnusedGradients::find}) {
            options.buckets.unused = unused;
            EXPECT_EQ(train_on_gpu(world, gpu, training, options, backward_of(training, world.rank())),
                      train_sharded(world, training, options))
                << "stage " << static_cast<int>(stage) << ", overlap " << overlap << ", passes " << passes;
          }
        }
      }
    });
  }
}

/// On the host as train_on_gpu() does it there.
std::vector<std::byte> train_on_host(Communicator& world, Training const& t, ZeroOptions const& options,
                                     Backward const& backward, std::function<void(ZeroOptimizer&)> const& after) {
  Parameters const parameters(t.specs);
  ZeroOptimizer zero(world, parameters.groups(t.first, t.second), options);
  for (std::size_t step = 0; step < t.steps; ++step) {
    zero.wait_parameters();
    for (std::size_t const i : shuffled(t.specs.size(), 7)) {
      backward(zero.gradient(i), zero.parameter(i), step, i);
      zero.mark_ready(i);
    }
    zero.step();
    after(zero);
  }
  zero.wait_parameters();
  return bytes_of(t.specs.size(), [&](std::size_t i) { return zero.parameter(i); });
}

TEST_F(FakeZero, AScalersOverflowsSkipOnAllRanksAsOnTheCpu) {
  Training const training{
      .specs = model(11, 52), .first = AdamWOptions{.lr = 0.01}, .second = AdamOptions{.lr = 0.01}, .steps = 9};
  run_ranks(2, [&](Communicator& world) {
    Backward const backward = [&](BufferView gradient, BufferView parameter, std::size_t step, std::size_t tensor) {
      write_gradient(gradient, parameter, world.rank(), step, tensor);
      auto* const values = static_cast<float*>(gradient.data);
      for (std::size_t e = 0; e < gradient.count; ++e) values[e] *= 1024;
      bool const overflows = step % 3 == 1 && world.rank() == 1 && tensor == 4;
      if (overflows && gradient.count != 0) values[gradient.count - 1] = std::numeric_limits<float>::infinity();
    };
    for (bool const clips : {false, true}) {
      ZeroStage const stage = clips ? ZeroStage::gradients : ZeroStage::optimizer_states;
      GradScalerOptions const scaling{.init_scale = 1024, .growth_interval = 2};
      GradScaler on_host(scaling);
      GradScaler on_gpu(scaling, kGpu);
      ZeroOptions options{.stage = stage};
      options.buckets.limits = {3000, 9000, 1000};
      options.gradients.max_norm = clips ? std::optional(0.5) : std::nullopt;
      options.gradients.scaler = &on_host;
      GradientNorm norm;
      auto const expected = train_on_host(world, training, options, backward, [&](ZeroOptimizer& zero) {
        on_host.update();
        norm = zero.gradient_norm();
      });
      options.gradients.scaler = &on_gpu;
      std::size_t step = 0;
      auto const got = train_on_gpu(world, gpu, training, options, backward, [&](ZeroOptimizer& zero, Stream& compute) {
        on_gpu.update(&compute);
        if (++step < training.steps) return;
        EXPECT_EQ(zero.gradient_norm().finite, norm.finite);
        EXPECT_NEAR(zero.gradient_norm().norm, norm.norm, 1e-6 * norm.norm);
        EXPECT_EQ(zero.step_count(), 6);
        step = 0;
      });
      EXPECT_EQ(on_gpu.state(), on_host.state());
      if (clips) {
        expect_near(got, expected, 1e-6);
      } else {
        EXPECT_EQ(got, expected);
      }
    }
  });
}

// The flag of an overflow stays in the GPU's memory, and would skip every later step.
TEST_F(FakeZero, AForgottenUpdateOfTheScalerIsRefusedBeforeAnythingIsSent) {
  run_ranks(2, [&](Communicator& world) {
    Training const t{.specs = std::vector<TensorSpec>(6, TensorSpec{500, DataType::f32}),
                     .first = SgdOptions{.lr = 0.1},
                     .second = SgdOptions{.lr = 0.1}};
    Parameters const values(t.specs);
    Copies const parameters(gpu, values);
    Stream compute = gpu.make_stream();
    GradScaler scaler({.init_scale = 64}, kGpu);
    ZeroOptions options{.stage = ZeroStage::optimizer_states};
    options.buckets.rebuild = false;
    options.buckets.compute = compute;
    options.gradients.scaler = &scaler;
    ZeroOptimizer zero(world, parameters.groups(t), options);
    auto const step = [&](bool overflows) {
      launch(gpu, compute, [=, to = zero.gradient(0)] {
        static_cast<float*>(to.data)[0] = overflows ? std::numeric_limits<float>::infinity() : 1;
      });
      for (std::size_t i = zero.parameter_count(); i-- > 0;) zero.mark_ready(i);
      zero.step({.stream = &compute});
    };
    step(true);
    auto const reductions = gpu.count_here("ncclAllReduce");
    expect_refused([&] { zero.step({.stream = &compute}); }, "the scaler has had no update() since the last step");
    EXPECT_EQ(gpu.count_here("ncclAllReduce"), reductions);
    scaler.update(&compute);
    step(false);
    scaler.update(&compute);
    EXPECT_EQ(zero.step_count(), 1);  // of the two the first one was skipped
  });
}

TEST_F(FakeZero, AParameterWaitsForItsOwnBucket) {
  run_ranks(2, [&](Communicator& world) {
    Stream compute = gpu.make_stream();
    Parameters const values(model(8, 53));
    Training const t{.specs = {}, .first = SgdOptions{.lr = 0.1}, .second = SgdOptions{.lr = 0.1}};
    Copies const parameters(gpu, values);
    ZeroOptions options{.stage = ZeroStage::optimizer_states};
    options.buckets.limits = {1, 1, 1};
    options.buckets.rebuild = false;
    options.buckets.compute = compute;
    ZeroOptimizer zero(world, parameters.groups(t), options);
    gpu.hold(compute);  // nothing is computed yet
    auto const reductions = gpu.count_here("ncclReduceScatter");
    for (std::size_t i = zero.parameter_count(); i-- > 1;) zero.mark_ready(i);
    EXPECT_GT(gpu.count_here("ncclReduceScatter"), reductions + 2);  // by mark_ready() alone
    zero.step();
    auto const waits = gpu.count_here("cudaStreamWaitEvent");
    zero.wait_parameter(0);
    EXPECT_EQ(gpu.count_here("cudaStreamWaitEvent"), waits + 1);
    gpu.release(compute);
    compute.synchronize();
  });
}

// The account is of what the host has asked for and given back.
TEST_F(FakeZero, StageTwoKeepsPartsOfGradientsAndABucketOnlyWhileItIsUsed) {
  run_ranks(2, [&](Communicator& world) {
    std::size_t const each = 4096;
    Training const t{.specs = std::vector<TensorSpec>(8, TensorSpec{each, DataType::f32}),
                     .first = SgdOptions{.lr = 0.1},
                     .second = SgdOptions{.lr = 0.1}};
    Parameters const values(t.specs);
    Copies const parameters(gpu, values);
    MemoryAccount const account;
    MemoryAccount::Binding const bound(account);
    ZeroOptions options;
    options.buckets.limits = {1, 1, 1};
    options.buckets.rebuild = false;
    options.buckets.compute = gpu.make_stream();
    ZeroOptimizer zero(world, parameters.groups(t), options);
    std::size_t const all = 8 * each * sizeof(float);
    EXPECT_EQ(account.usage(MemoryKind::gradients).live, all / 2);
    for (int step = 0; step < 2; ++step) {
      zero.wait_parameters();
      for (std::size_t i = 8; i-- > 0;) {
        launch(gpu, *options.buckets.compute, [to = zero.gradient(i)] {
          for (float& value : floats(to)) value += 1;  // what is new is zero
        });
        zero.mark_ready(i);
      }
      zero.step();
      EXPECT_EQ(account.usage(MemoryKind::gradients).live, all / 2);
    }
    EXPECT_EQ(account.usage(MemoryKind::gradients).peak, all / 2 + each * sizeof(float));
    Stream(*options.buckets.compute).synchronize();
    for (std::size_t e = 0; e < each; ++e) {
      ASSERT_EQ(static_cast<float const*>(zero.gradient_shard(3).data)[e % zero.shard(3).count], 1.0F);
    }
  });
}

TEST_F(FakeZero, StatesAreReadAndWritten) {
  run_ranks(2, [&](Communicator& world) {
    Training const t{.specs = model(6, 54), .first = AdamWOptions{.lr = 0.01}, .second = AdamWOptions{.lr = 0.01}};
    Parameters const values(t.specs);
    Copies const parameters(gpu, values);
    Stream compute = gpu.make_stream();
    ZeroOptions options{.stage = ZeroStage::optimizer_states};
    options.buckets.rebuild = false;
    options.buckets.compute = compute;
    ZeroOptimizer zero(world, parameters.groups(t), options);
    expect_states_to_be_set(zero, values.views());
  });
}

// What is recorded may not wait for what was enqueued before, though that is under way.
TEST_F(FakeZero, AStepCanBeRecordedRightBehindOneThatWasNot) {
  run_ranks(1, [&](Communicator& world) {
    Training const t{.specs = model(6, 55), .first = AdamWOptions{.lr = 0.01}, .second = AdamWOptions{.lr = 0.01}};
    Parameters const values(t.specs);
    Copies const parameters(gpu, values);
    Stream compute = gpu.make_stream();
    ZeroOptions options{.stage = ZeroStage::optimizer_states};
    options.buckets.compute = compute;
    ZeroOptimizer zero(world, parameters.groups(t), options);
    for (int step = 0; step < 3; ++step) {
      if (step == 2) gpu.hold(compute);
      for (std::size_t i = 0; i < zero.parameter_count(); ++i) zero.wait_parameter(i);
      for (std::size_t i = zero.parameter_count(); i-- > 0;) zero.mark_ready(i);
      zero.step();
      if (step < 2) compute.synchronize();
    }
    zero.wait_parameters();
    gpu.begin_capture(compute);
    for (std::size_t i = 0; i < zero.parameter_count(); ++i) zero.wait_parameter(i);
    static_cast<void>(gpu.end_capture(compute));
    gpu.release(compute);
    compute.synchronize();
  });
}

TEST_F(FakeZero, WhatIsNotThereOnAGpuIsNamed) {
  run_ranks(2, [&](Communicator& world) {
    Buffer const memory = gpu.allocate(1000, DataType::f32);
    Buffer const host = Buffer::host(10, DataType::f32);
    GradScaler scaler;
    auto const refused = [&](std::vector<BufferView> const& parameters, OptimizerOptions const& optimizer,
                             ZeroOptions const& options, std::string const& word) {
      expect_refused([&] { ZeroOptimizer const zero(world, {{parameters, optimizer}}, options); }, word);
    };
    ZeroOptions const stage1{.stage = ZeroStage::optimizer_states};
    refused({memory.view(), host.view()}, AdamWOptions{}, stage1, "parameter 1");
    ZeroOptions scaled = stage1;
    scaled.gradients.scaler = &scaler;
    refused({memory.view()}, AdamWOptions{}, scaled, "GradScaler(options, device)");
    GradScaler on_gpu({}, kGpu);
    scaled.gradients.scaler = &on_gpu;
    refused({host.view()}, AdamWOptions{}, scaled, "the parameters on cpu");
    Stream compute = gpu.make_stream();
    Stream const other = gpu.make_stream();
    ZeroOptions options = stage1;
    options.buckets.compute = compute;
    ZeroOptimizer zero(world, {{{memory.view()}, AdamWOptions{}}}, options);
    EXPECT_THROW(zero.step({.stream = &other}), Error);
    zero.mark_ready(0);
    zero.step({.stream = &compute});
  });
}

}  // namespace
}  // namespace weft::test
