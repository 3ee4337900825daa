// FullySharded on a GPU's streams: the CPU's bits, and nobody waits.
#include "cuda/fake/fake_fully_sharded.hpp"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace weft::test {
namespace {

TEST_F(FakeFullySharded, HasTheBitsOfTheCpuWithoutWaiting) {
  Training const training{
      .specs = units_with_types(true), .first = AdamWOptions{.lr = 0.01}, .second = SgdOptions{.lr = 0.1}};
  for (int const ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](Communicator& world) {
      for (std::size_t const prefetch : {0U, 1U, 3U}) {
        for (bool const reshard : {true, false}) {
          for (bool const poison : {true, false}) {
            FullyShardedOptions const options{.prefetch = prefetch, .reshard_after_forward = reshard, .poison = poison};
            EXPECT_EQ(train_on_gpu(world, gpu, training, options), train_on_host(world, gpu, training, options))
                << ranks << " ranks, prefetch " << prefetch << ", reshard " << reshard << ", poison " << poison;
          }
        }
      }
    });
  }
}

TEST_F(FakeFullySharded, LambIsThatOfTheCpuWithoutWaiting) {
  Training const training{
      .specs = awkward(), .first = LambOptions{.lr = 0.01, .weight_decay = 0.1}, .second = AdamWOptions{.lr = 0.01}};
  for (int const shard_size : {0, 2}) {
    run_ranks(4, [&](Communicator& world) {
      FullyShardedOptions const options{.shard_size = shard_size};
      expect_near(train_on_gpu(world, gpu, training, options), train_on_host(world, gpu, training, options), 1e-6);
    });
  }
}

TEST_F(FakeFullySharded, ShardsWithinGroupsOfReplicas) {
  Training const training{
      .specs = units_with_types(false), .first = AdamWOptions{.lr = 0.01}, .second = LionOptions{.lr = 0.01}};
  run_ranks(4, [&](Communicator& world) {
    for (int const size : {1, 2}) {
      for (auto const sum : {HybridSum::by_group, HybridSum::rank_order}) {
        FullyShardedOptions const options{.shard_size = size, .hybrid_sum = sum, .poison = true};
        EXPECT_EQ(train_on_gpu(world, gpu, training, options), train_on_host(world, gpu, training, options)) << size;
      }
    }
  });
}

TEST_F(FakeFullySharded, AccumulatesMarksUnusedAndConverts) {
  run_ranks(2, [&](Communicator& world) {
    for (std::size_t const passes : {1U, 3U}) {
      Training training{
          .specs = units_with_types(false), .first = AdamWOptions{.lr = 0.01}, .second = AdamOptions{.lr = 0.01}};
      training.passes = passes;
      training.unused = passes == 1;
      training.settings.zero_gradients = passes == 1;
      FullyShardedOptions options{.poison = true};
      EXPECT_EQ(train_on_gpu(world, gpu, training, options), train_on_host(world, gpu, training, options)) << passes;
      options.parameter_type = DataType::bf16;
      options.reduce_type = DataType::f32;
      EXPECT_EQ(train_on_gpu(world, gpu, training, options), train_on_host(world, gpu, training, options)) << passes;
      for (auto const unused : {UnusedGradients::find, UnusedGradients::fixed}) {
        if (unused == UnusedGradients::fixed && training.unused) continue;
        options.unused = unused;
        EXPECT_EQ(train_on_gpu(world, gpu, training, options), train_on_host(world, gpu, training, options)) << passes;
      }
    }
  });
}

// Each pass is reduced, and its average added to the shard.
TEST_F(FakeFullySharded, AddsUpPassesThatWereReduced) {
  Training const training{
      .specs = units_with_types(false), .first = AdamWOptions{.lr = 0.01}, .second = SgdOptions{.lr = 0.1}, .steps = 4};
  run_ranks(2, [&](Communicator& world) {
    for (auto const type : {DataType::f32, DataType::bf16}) {
      auto const train = [&](bool on_gpu) {
        FullyShardedOptions options{.parameter_type = type, .poison = true};
        Stream compute = gpu.make_stream();
        Parameters const values(training.specs);
        UnitsOnGpu const parameters(gpu, units_of(values, training, 4));
        if (on_gpu) options.compute = compute;
        FullySharded model(world, on_gpu ? parameters.units() : units_of(values, training, 4), options);
        UnitTrainer trainer(gpu, model, training, world.rank(), on_gpu ? &compute : nullptr);
        for (std::size_t step = 0; step < training.steps; ++step) {
          for (std::size_t pass = 0; pass < 3; ++pass) trainer.pass(3 * step + pass, 0);
          model.step();
        }
        return trainer.gathered();
      };
      EXPECT_EQ(train(true), train(false)) << to_string(type);
    }
  });
}

TEST_F(FakeFullySharded, AScalersOverflowsSkipOnAllRanksAsOnTheCpu) {
  Training const training{.specs = units_with_types(false),
                          .first = AdamWOptions{.lr = 0.01},
                          .second = AdamOptions{.lr = 0.01},
                          .steps = 9};
  for (int const shard_size : {0, 2}) {
    run_ranks(shard_size == 0 ? 2 : 4, [&](Communicator& world) {
      UnitGradients const gradients{.scale = 1024, .overflows = [&](std::size_t step, std::size_t tensor) {
                                      return step % 3 == 1 && world.rank() == 1 && tensor == 4;
                                    }};
      for (bool const clips : {false, true}) {
        GradScalerOptions const scaling{.init_scale = 1024, .growth_interval = 2};
        GradScaler on_host(scaling);
        GradScaler on_gpu(scaling, kGpu);
        FullyShardedOptions options{.shard_size = shard_size, .poison = true};
        options.gradients.max_norm = clips ? std::optional(0.5) : std::nullopt;
        options.gradients.scaler = &on_host;
        GradientNorm norm;
        auto const expected =
            train_on_host(world, gpu, training, options, gradients, [&](FullySharded& model, std::size_t) {
              on_host.update();
              norm = model.gradient_norm();
            });
        options.gradients.scaler = &on_gpu;
        Stream compute = gpu.make_stream();
        options.compute = compute;
        auto const got =
            train_on_gpu(world, gpu, training, options, gradients, [&](FullySharded& model, std::size_t step) {
              on_gpu.update(&compute);
              if (step + 1 < training.steps) return;
              EXPECT_EQ(model.gradient_norm().finite, norm.finite);
              EXPECT_NEAR(model.gradient_norm().norm, norm.norm, 1e-6 * norm.norm);
              EXPECT_EQ(model.step_count(), 6);
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
}

// Whatever comes late, what follows it waits, and on nobody's thread.
TEST_F(FakeFullySharded, StreamsWaitForOneAnother) {
  Training const training{
      .specs = units_with_types(false), .first = AdamWOptions{.lr = 0.01}, .second = SgdOptions{.lr = 0.1}, .steps = 3};
  run_ranks(2, [&](Communicator& world) {
    for (bool const judges : {false, true}) {
      FullyShardedOptions options{.poison = true};
      if (judges) options.gradients.max_norm = 1e6;
      auto const expected = train_on_host(world, gpu, training, options);
      for (int const late : {0, 1, 2}) {
        Parameters const values(training.specs);
        UnitsOnGpu const parameters(gpu, units_of(values, training, 4));
        Stream compute = gpu.make_stream();
        options.compute = compute;
        options.gather_stream = gpu.make_stream();
        options.reduce_stream = gpu.make_stream();
        FullySharded model(world, parameters.units(), options);
        Stream const held = late == 0 ? compute : late == 1 ? *options.gather_stream : *options.reduce_stream;
        gpu.hold(held);
        UnitTrainer trainer(gpu, model, training, world.rank(), &compute);
        for (std::size_t step = 0; step < training.steps; ++step) trainer.step(step);  // all of it enqueued
        gpu.release(held);
        auto const got = trainer.gathered();
        if (judges) {
          expect_near(got, expected, 1e-6);
        } else {
          EXPECT_EQ(got, expected) << "late: " << late;
        }
        options = FullyShardedOptions{.gradients = options.gradients, .poison = true};
      }
    }
  });
}

// What compute has enqueued may run in bursts, while the host goes on.
TEST_F(FakeFullySharded, GathersAreSentForAheadOfTheUnitInUse) {
  run_ranks(2, [&](Communicator& world) {
    Training const t{.specs = std::vector<TensorSpec>(6, TensorSpec{1000, DataType::f32}),
                     .first = SgdOptions{.lr = 0.1},
                     .second = SgdOptions{.lr = 0.1}};
    Parameters const values(t.specs);
    UnitsOnGpu const parameters(gpu, units_of(values, t, 1));
    Stream compute = gpu.make_stream();
    FullyShardedOptions options;
    options.compute = compute;
    FullySharded model(world, parameters.units(), options);
    gpu.hold(compute);  // nothing is computed yet
    auto const gathers = gpu.count_here("ncclAllGather");
    model.before_forward(0);
    EXPECT_EQ(gpu.count_here("ncclAllGather"), gathers + 2);
    model.after_forward(0);
    model.before_forward(1);
    EXPECT_EQ(gpu.count_here("ncclAllGather"), gathers + 3);
    model.after_forward(1);
    gpu.release(compute);
    compute.synchronize();
  });
}

TEST_F(FakeFullySharded, StatesAreReadAndWritten) {
  run_ranks(2, [&](Communicator& world) {
    Training const t{
        .specs = units_with_types(false), .first = AdamWOptions{.lr = 0.01}, .second = AdamWOptions{.lr = 0.01}};
    Parameters const values(t.specs);
    UnitsOnGpu const parameters(gpu, units_of(values, t, 4));
    FullyShardedOptions options;
    options.compute = gpu.make_stream();
    FullySharded model(world, parameters.units(), options);
    expect_states_to_be_set(model, values.views());
  });
}

TEST_F(FakeFullySharded, ReducedGradientsAreMeasuredAndChanged) {
  run_ranks(2, [&](Communicator& world) {
    Training const t{
        .specs = units_with_types(false), .first = SgdOptions{.lr = 0.1}, .second = SgdOptions{.lr = 0.1}, .steps = 1};
    auto const train = [&](bool on_gpu) {
      Stream compute = gpu.make_stream();
      FullyShardedOptions options;
      if (on_gpu) options.compute = compute;
      options.gradients.max_norm = 1e-3;
      Parameters const values(t.specs);
      UnitsOnGpu const parameters(gpu, units_of(values, t, 4));
      FullySharded model(world, on_gpu ? parameters.units() : units_of(values, t, 4), options);
      UnitTrainer trainer(gpu, model, t, world.rank(), on_gpu ? &compute : nullptr);
      trainer.pass(0, 0);
      model.reduce();
      double const norm = model.measure_gradients().norm;
      for (BufferView const& shard : model.gradient_shards()) {
        auto const halve = [shard] {
          for (std::size_t e = 0; e < shard.count; ++e) static_cast<float*>(shard.data)[e] *= 0.5F;
        };
        on_gpu ? launch(gpu, compute, halve) : halve();
      }
      model.step();
      EXPECT_NEAR(model.gradient_norm().norm, norm / 2, 1e-5 * norm);
      return trainer.gathered();
    };
    auto const got = train(true);
    expect_near(got, train(false), 1e-6);
  });
}

TEST_F(FakeFullySharded, AScalersForgottenUpdateIsRefused) {
  run_ranks(2, [&](Communicator& world) {
    Training const t{.specs = units_with_types(false), .first = SgdOptions{.lr = 0.1}, .second = SgdOptions{.lr = 0.1}};
    Parameters const values(t.specs);
    UnitsOnGpu const parameters(gpu, units_of(values, t, 4));
    Stream compute = gpu.make_stream();
    GradScaler scaler({}, kGpu);
    FullyShardedOptions options;
    options.compute = compute;
    options.gradients.scaler = &scaler;
    FullySharded model(world, parameters.units(), options);
    UnitTrainer trainer(gpu, model, t, world.rank(), &compute);
    trainer.step(0);
    trainer.pass(1, 0);
    EXPECT_THROW(model.step(), Error);
    scaler.update(&compute);
    model.step();
  });
}

TEST_F(FakeFullySharded, RanksThatUseOtherUnitsAreTold) {
  std::atomic<int> told{0};
  run_ranks(2, [&](Communicator& world) {
    Training const t{.specs = std::vector<TensorSpec>(6, TensorSpec{1000, DataType::f32}),
                     .first = SgdOptions{.lr = 0.1},
                     .second = SgdOptions{.lr = 0.1}};
    Parameters const values(t.specs);
    UnitsOnGpu const parameters(gpu, units_of(values, t, 1));
    FullyShardedOptions options{.prefetch = 0};
    Stream compute = gpu.make_stream();
    options.compute = compute;
    FullySharded model(world, parameters.units(), options);
    try {
      for (int i = 0; i < 1000; ++i) {
        auto const unit = static_cast<std::size_t>(world.rank() == 0 ? 2 : 3);
        model.before_forward(unit);
        model.after_forward(unit);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    } catch (Error const& error) {
      ++told;
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_NE(std::string(error.what()).find("unit 'unit 2' in forward"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("unit 'unit 3' in forward"), std::string::npos) << error.what();
    }
  });
  EXPECT_EQ(told, 2);
}

TEST_F(FakeFullySharded, WhatIsNotThereOnAGpuIsNamed) {
  run_ranks(2, [&](Communicator& world) {
    Buffer const memory = gpu.allocate(1000, DataType::f32);
    Buffer const host = Buffer::host(10, DataType::f32);
    GradScaler scaler;
    auto const refused = [&](std::vector<BufferView> const& parameters, OptimizerOptions const& optimizer,
                             FullyShardedOptions const& options, std::string const& word) {
      expect_refused([&] { FullySharded const model(world, {{"only", {{parameters, optimizer}}}}, options); }, word);
    };
    refused({memory.view(), host.view()}, AdamWOptions{}, {}, "parameter 1");
    refused({memory.view()}, AdamWOptions{}, {.compute = Stream::cpu()}, "options.compute");
    FullyShardedOptions scaled;
    scaled.gradients.scaler = &scaler;
    refused({memory.view()}, AdamWOptions{}, scaled, "GradScaler(options, device)");
    GradScaler on_gpu({}, kGpu);
    scaled.gradients.scaler = &on_gpu;
    refused({host.view()}, AdamWOptions{}, scaled, "the parameters on cpu");
  });
}

}  // namespace
}  // namespace weft::test
