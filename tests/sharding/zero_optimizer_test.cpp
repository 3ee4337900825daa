#include "weft/zero_optimizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "sharding/zero_training.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

constexpr ZeroStage kStages[] = {ZeroStage::optimizer_states, ZeroStage::gradients};

struct Kind {
  char const* name;
  OptimizerOptions first;
  OptimizerOptions second;
};

std::vector<Kind> elementwise() {
  return {{"AdamW", AdamWOptions{.lr = 0.01}, AdamWOptions{.lr = 0.02, .weight_decay = 0, .amsgrad = true}},
          {"Adam", AdamOptions{.lr = 0.01, .weight_decay = 0.1}, AdamOptions{.lr = 0.01, .maximize = true}},
          {"Sgd", SgdOptions{.lr = 0.1, .momentum = 0.9}, SgdOptions{.lr = 0.1, .momentum = 0.5, .nesterov = true}},
          {"Lion", LionOptions{.lr = 0.01}, LionOptions{.lr = 0.02, .weight_decay = 0.1}},
          {"Adagrad", AdagradOptions{.lr = 0.1}, AdagradOptions{.lr = 0.1, .weight_decay = 0.1}}};
}

class ZeroBits : public testing::TestWithParam<Kind> {};

TEST_P(ZeroBits, EqualReplicasWithAWholeOptimizer) {
  Training const training{.specs = model(15, 50), .first = GetParam().first, .second = GetParam().second};
  for (int const ranks : {1, 2, 3, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      auto const expected = train_replicated(world, training);
      for (ZeroStage const stage : kStages) {
        for (std::size_t const cap : {1U, 9000U, 1U << 20U}) {
          for (bool const rebuild : {true, false}) {
            ZeroOptions options{.stage = stage};
            options.buckets.limits = {cap, cap, 1};
            options.buckets.rebuild = rebuild;
            EXPECT_EQ(train_sharded(world, training, options), expected)
                << ranks << " ranks, stage " << static_cast<int>(stage) << ", cap " << cap << ", rebuild " << rebuild;
          }
        }
      }
    });
  }
}

TEST_P(ZeroBits, SurvivePoisonUnusedGradientsAndAccumulation) {
  for (std::size_t const passes : {1U, 3U}) {
    Training training{.specs = model(13, 51), .first = GetParam().first, .second = GetParam().second};
    training.unused = passes == 1;  // a tensor that is skipped is not cleared by the passes that add
    training.passes = passes;
    run_thread_ranks(3, [&](Communicator& world) {
      auto const expected = train_replicated(world, training);
      for (ZeroStage const stage : kStages) {
        for (bool const overlap : {true, false}) {
          ZeroOptions options{.stage = stage};
          options.buckets.limits = {3000, 9000, 1000};
          options.buckets.overlap = overlap;
          EXPECT_EQ(train_sharded(world, training, options, true), expected)
              << "stage " << static_cast<int>(stage) << ", overlap " << overlap << ", passes " << passes;
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ZeroBits, testing::ValuesIn(elementwise()),
                         [](auto const& kind) { return kind.param.name; });

// Parameters travel until they are used: rank 0 comes out of its step while rank 1 has yet to begin one.
TEST(ZeroOptimizer, AStepDoesNotWaitForItsGathers) {
  for (ZeroStage const stage : kStages) {
    std::atomic<int> stepped{0};
    run_thread_ranks(2, [&](Communicator& world) {
      std::vector<Buffer> memory;
      ParameterGroup group{{}, AdamWOptions{.lr = 0.01}};
      for (int i = 0; i < 6; ++i) {
        memory.push_back(world.allocate(500, DataType::f32));
        group.parameters.push_back(memory.back().view());
      }
      ZeroOptions options{.stage = stage};
      options.buckets.limits = {4000, 4000, 4000};
      options.buckets.rebuild = false;
      ZeroOptimizer zero(world, {group}, options);
      for (int step = 1; step <= 3; ++step) {
        for (std::size_t i = 6; i-- > 0;) {
          std::span<float> const gradient = floats(zero.gradient(i));
          std::fill(gradient.begin(), gradient.end(), 1.0F);
          zero.mark_ready(i);
        }
        if (world.rank() == 1) stepped.wait(step - 1);
        zero.step();
        if (world.rank() == 0) {
          stepped = step;
          stepped.notify_all();
        }
        zero.wait_parameters();
      }
    });
  }
}

TEST(ZeroOptimizer, SixteenBitParametersFollowShardedMasters) {
  std::vector<TensorSpec> specs = model(12, 52);
  for (std::size_t i = 0; i < specs.size(); i += 2) specs[i].dtype = DataType::bf16;
  Training const training{.specs = specs, .first = AdamWOptions{.lr = 1e-3}, .second = AdamWOptions{.lr = 1e-4}};
  for (int const ranks : {1, 2, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      auto const expected = train_replicated(world, training);
      for (ZeroStage const stage : kStages) {
        ZeroOptions options{.stage = stage};
        options.buckets.limits = {3000, 9000, 1000};
        EXPECT_EQ(train_sharded(world, training, options, true), expected);
      }
    });
  }
}

TEST(ZeroOptimizer, LambsNormsAreOfWholeTensors) {
  Training const training{.specs = model(15, 53),
                          .first = LambOptions{.lr = 0.01, .weight_decay = 0.01},
                          .second = AdamWOptions{.lr = 0.01},
                          .steps = 8};
  for (int const ranks : {1, 2, 3, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      auto const expected = train_replicated(world, training);
      for (ZeroStage const stage : kStages) {
        for (std::size_t const cap : {1U, 9000U, 1U << 20U}) {
          ZeroOptions options{.stage = stage};
          options.buckets.limits = {cap, cap, 1};
          auto const got = train_sharded(world, training, options, true);
          expect_near(got, expected, 1e-6);
        }
      }
    });
  }
}

TEST(ZeroOptimizer, StatesAreDividedAmongRanks) {
  for (int const ranks : {1, 2, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      std::vector<TensorSpec> specs;
      for (std::size_t i = 0; i < 40; ++i) specs.push_back({10007 + i, i % 2 == 0 ? DataType::f32 : DataType::bf16});
      Parameters const parameters(specs);
      Optimizer const whole(parameters.views(), AdamWOptions{});
      ZeroOptions options;
      options.buckets.rebuild = false;
      options.buckets.limits = {1 << 16, 1 << 17, 1 << 16};
      ZeroOptimizer zero(world, {{parameters.views(), AdamWOptions{}}}, options);
      // 12 bytes an element at most, for padding of 64 bytes a tensor and a shard.
      std::size_t const slots = specs.size() + zero.plan().buckets.size() * static_cast<std::size_t>(ranks);
      double const share = static_cast<double>(whole.state_bytes()) / ranks;
      EXPECT_NEAR(static_cast<double>(zero.state_bytes()), share, 12.0 * 32.0 * static_cast<double>(slots));
      EXPECT_LT(std::abs(static_cast<double>(zero.state_bytes()) - share), 0.02 * share);
      std::vector<std::uint64_t> sum{zero.state_bytes()};
      world.all_reduce(std::span<std::uint64_t>(sum), std::span<std::uint64_t>(sum), ReduceOp::sum);
      EXPECT_EQ(sum[0], whole.state_bytes());  // nothing is kept twice
    });
  }
}

TEST(ZeroOptimizer, StatesCanBeTakenOutAndPutBack) {
  run_thread_ranks(3, [](Communicator& world) {
    std::vector<TensorSpec> const specs = model(9, 54);
    auto const train = [&](ZeroOptimizer& zero, std::size_t first, std::size_t last) {
      for (std::size_t step = first; step < last; ++step) {
        zero.wait_parameters();
        for (std::size_t i = 0; i < specs.size(); ++i) {
          write_gradient(zero.gradient(i), zero.parameter(i), world.rank(), step, i);
          zero.mark_ready(i);
        }
        zero.step();
      }
      zero.wait_parameters();
      return bytes_of(specs.size(), [&](std::size_t i) { return zero.parameter(i); });
    };
    ZeroOptions options;
    options.buckets.limits = {3000, 9000, 1000};
    Parameters const parameters(specs);
    ZeroOptimizer straight(world, {{parameters.views(), AdamWOptions{}}}, options);
    train(straight, 0, 3);

    std::vector<BufferView> views;
    for (std::size_t i = 0; i < specs.size(); ++i) views.push_back(straight.parameter(i));
    options.buckets.limits = {1, 1};
    options.buckets.rebuild = false;
    ZeroOptimizer resumed(world, {{views, AdamWOptions{}}}, options);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      ASSERT_EQ(straight.state_names(i).size(), 2U);
      for (std::size_t which = 0; which < 2; ++which) resumed.set_state(i, which, straight.state(i, which));
    }
    resumed.set_step_count(straight.step_count());
    EXPECT_EQ(resumed.step_count(), 3);
    auto const expected = train(straight, 3, 6);
    EXPECT_EQ(train(resumed, 3, 6), expected);
    EXPECT_THROW(resumed.set_state(1, 0, std::vector<float>(specs[1].count + 1)), Error);
    EXPECT_THROW((void)resumed.state(0, 2), Error);
  });
}

TEST(ZeroOptimizer, ReducedGradientsCanBeChangedBeforeTheStep) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<TensorSpec> const specs = model(9, 55);
    auto const run = [&](bool early, float scale) {
      Parameters const parameters(specs);
      ZeroOptimizer zero(world, {{parameters.views(), SgdOptions{.lr = 0.1}}});
      for (std::size_t step = 0; step < 3; ++step) {
        zero.wait_parameters();
        for (std::size_t i = 0; i < specs.size(); ++i) {
          write_gradient(zero.gradient(i), zero.parameter(i), world.rank(), step, i);
          zero.mark_ready(i);
        }
        if (early) {
          zero.reduce();
          EXPECT_THROW(zero.mark_ready(0), Error);
          for (std::size_t i = 0; i < specs.size(); ++i) {
            for (float& value : floats(zero.gradient_shard(i))) value *= scale;
          }
          zero.step();
        } else {
          zero.step({.inv_scale = &scale});
        }
      }
      zero.wait_parameters();
      return bytes_of(specs.size(), [&](std::size_t i) { return zero.parameter(i); });
    };
    EXPECT_EQ(run(true, 0.5F), run(false, 0.5F));
    EXPECT_NE(run(true, 0.5F), run(false, 1.0F));
  });
}

TEST(ZeroOptimizer, GradientsAreZeroedWhereAsked) {
  run_thread_ranks(3, [](Communicator& world) {
    for (ZeroStage const stage : kStages) {
      std::vector<TensorSpec> const specs = model(9, 56);
      Parameters const parameters(specs);
      ZeroOptimizer zero(world, {{parameters.views(), SgdOptions{}}},
                         {.stage = stage, .optimizer = {.zero_gradients = true}});
      for (std::size_t step = 0; step < 2; ++step) {
        for (std::size_t i = 0; i < specs.size(); ++i) {
          write_gradient(zero.gradient(i), zero.parameter(i), world.rank(), step, i);
          zero.mark_ready(i);
        }
        zero.step();
        for (std::size_t i = 0; i < specs.size(); ++i) {
          for (float const value : floats(zero.gradient(i))) ASSERT_EQ(value, 0.0F);
        }
        zero.wait_parameters();
      }
    }
  });
}

TEST(ZeroOptimizer, GathersTheFirstLayersFirstAndTimesThem) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<TensorSpec> const specs{{1000}, {2000}, {3000}};
    Parameters const parameters(specs);
    ZeroOptions options;
    options.buckets.limits = {1, 1};
    ZeroOptimizer zero(world, {{parameters.views(), SgdOptions{}}}, options);
    for (std::size_t i = 3; i-- > 0;) {
      write_gradient(zero.gradient(i), zero.parameter(i), world.rank(), 0, i);
      zero.mark_ready(i);
    }
    zero.step();
    zero.wait_parameters();
    ASSERT_EQ(zero.reductions().size(), 3U);
    ASSERT_EQ(zero.gathers().size(), 3U);
    EXPECT_EQ(zero.updates().size(), 3U);
    EXPECT_LT(zero.gathers()[0].bytes, zero.gathers()[1].bytes);  // the smallest tensor is the first layer's
    EXPECT_LT(zero.gathers()[1].bytes, zero.gathers()[2].bytes);
    for (BucketTiming const& gather : zero.gathers()) {
      EXPECT_GE(gather.started, zero.reductions().back().finished);
      EXPECT_GE(gather.finished, gather.started);
    }
  });
}

TEST(ZeroOptimizer, ALostRankEndsItForTheOthers) {
  for (std::size_t const good_steps : {0U, 2U}) {
    run_thread_ranks(3, [&](Communicator& world) {
      std::vector<TensorSpec> const specs = model(9, 58);
      Parameters const parameters(specs);
      ZeroOptimizer zero(world, {{parameters.views(), AdamWOptions{}}});
      auto const step = [&](std::size_t number) {
        for (std::size_t i = 0; i < specs.size(); ++i) {
          zero.wait_parameter(i);
          write_gradient(zero.gradient(i), zero.parameter(i), world.rank(), number, i);
          zero.mark_ready(i);
        }
        zero.step();
      };
      for (std::size_t number = 0; number < good_steps; ++number) step(number);
      if (world.rank() == 2) return;
      for (int attempt = 0; attempt < 2; ++attempt) {  // the second rethrows what the first met
        try {
          step(good_steps);
          zero.wait_parameters();
          ADD_FAILURE() << "went on without rank 2";
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
          EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
        }
      }
    });
  }
}

/// What the constructor says on a rank, or "".
std::string refusal(Communicator& world, std::vector<ParameterGroup> const& groups, ZeroOptions const& options,
                    ErrorCode expected) {
  try {
    ZeroOptimizer const zero(world, groups, options);
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), expected) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(ZeroOptimizer, RefusesBadInputNamingRankAndParameter) {
  run_thread_ranks(2, [](Communicator& world) {
    auto const contains = [](std::string const& text, std::string const& part) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    std::string const me = "rank " + std::to_string(world.rank());
    Parameters const good(model(3, 57));
    auto views = good.views();
    views[1] = BufferView(nullptr, 5, DataType::f32);
    contains(refusal(world, {{views, SgdOptions{}}}, {}, ErrorCode::invalid_argument),
             me + ": zero optimizer: parameter 1");
    views[1] = BufferView(views[0].data, 5, DataType::i32);
    contains(refusal(world, {{views, SgdOptions{}}}, {}, ErrorCode::unsupported), me + ": zero optimizer: parameter 1");
    views[1] = views[0];
    contains(refusal(world, {{views, SgdOptions{}}}, {}, ErrorCode::invalid_argument),
             me + ": zero optimizer: parameters 0 and 1 share memory");
    contains(refusal(world, {{good.views(), SgdOptions{.lr = -1}}}, {}, ErrorCode::invalid_argument), "lr");

    Parameters const odd(std::vector<TensorSpec>{{10}, {world.rank() == 0 ? 20U : 21U}});
    contains(refusal(world, {{odd.views(), SgdOptions{}}}, {}, ErrorCode::mismatch),
             "rank 1 differs from rank 0: parameter 1 is 21 x f32");
    contains(refusal(world, {{good.views(), SgdOptions{.lr = 0.1 + world.rank()}}}, {}, ErrorCode::mismatch),
             "rank 1 differs from rank 0: group 0");
    ZeroOptions options;
    options.stage = world.rank() == 0 ? ZeroStage::gradients : ZeroStage::optimizer_states;
    contains(refusal(world, {{good.views(), SgdOptions{}}}, options, ErrorCode::mismatch),
             "rank 1 differs from rank 0: the stage");
    options = {};
    options.optimizer.state = world.rank() == 0 ? StateType::f32 : StateType::block8;
    contains(refusal(world, {{good.views(), SgdOptions{}}}, options, ErrorCode::mismatch),
             "optimizer.state (rank 0: f32, rank 1: block8)");
    options = {};
    options.gradients = {.max_norm = 2, .norm_type = world.rank() == 0 ? NormType::l2 : NormType::inf};
    contains(refusal(world, {{good.views(), SgdOptions{}}}, options, ErrorCode::mismatch),
             world.rank() == 0 ? "2, l2 norm" : "2, inf norm");

    ZeroOptimizer zero(world, {{good.views(), SgdOptions{}}});  // the communicator goes on
    EXPECT_THROW((void)zero.parameter(3), Error);
    EXPECT_THROW(zero.wait_parameter(3), Error);
    EXPECT_THROW(zero.mark_ready(3), Error);
    EXPECT_THROW(zero.set_state(0, 0, {}), Error);  // shards may still move
  });
}

}  // namespace
}  // namespace weft::test
