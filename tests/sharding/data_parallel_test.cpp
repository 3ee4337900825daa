#include "weft/data_parallel.hpp"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

/// Private memory for a model's parameters, different on every rank.
struct Model {
  Model(std::vector<TensorSpec> const& specs, int rank) {
    for (TensorSpec const& spec : specs) {
      memory.push_back(Buffer::host(spec.count, spec.dtype));
      views.push_back(memory.back().view());
      for (float& value : floats(views.back()))
        value = static_cast<float>(rank) + 0.25F * static_cast<float>(views.size());
    }
  }
  std::vector<Buffer> memory;
  std::vector<BufferView> views;
};

TEST(DataParallel, StartsFromRankZerosParameters) {
  run_thread_ranks(3, [](Communicator& world) {
    Model model_here(model(7, 13), world.rank());
    DataParallel ddp(world, model_here.views);
    ASSERT_EQ(ddp.parameter_count(), 7U);
    for (std::size_t p = 0; p < 7; ++p) {
      EXPECT_EQ(ddp.parameter(p).data, model_here.views[p].data);
      EXPECT_EQ(ddp.gradient(p).count, ddp.parameter(p).count);
      for (float const value : floats(ddp.parameter(p))) ASSERT_EQ(value, 0.25F * static_cast<float>(p + 1));
    }
  });
}

TEST(DataParallel, ParametersMayBeSymmetricMemory) {
  run_thread_ranks(2, [](Communicator& world) {
    Buffer const parameter = world.allocate(1000, DataType::f32);
    for (float& value : parameter.as<float>()) value = static_cast<float>(5 + world.rank());
    DataParallel ddp(world, {parameter.view()});
    for (float const value : parameter.as<float>()) ASSERT_EQ(value, 5.0F);
  });
}

TEST(DataParallel, DifferentShapesNameTheParameter) {
  run_thread_ranks(2, [](Communicator& world) {
    Model model_here({{10}, {world.rank() == 0 ? 20U : 21U}}, world.rank());
    try {
      DataParallel ddp(world, model_here.views);
      ADD_FAILURE() << "accepted";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_NE(std::string(error.what()).find("rank 1 differs from rank 0: parameter 1 is 21 x f32"),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(DataParallel, AParameterWithoutMemoryIsRefused) {
  run_thread_ranks(2, [](Communicator& world) {
    EXPECT_THROW(DataParallel(world, {BufferView(nullptr, 3, DataType::f32)}), Error);
  });
}

// Gradient descent on a quadratic: replicas stay equal and follow the serial run in double precision.
TEST(DataParallel, ParametersThatShareMemoryAreRefused) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> values(100);
    std::span<float> const all(values);
    auto const refuse = [&](std::vector<BufferView> const& parameters, std::string const& pair) {
      try {
        DataParallel const ddp(world, parameters);
        ADD_FAILURE() << "accepted " << pair;
      } catch (Error const& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        std::string const expected =
            "rank " + std::to_string(world.rank()) + ": data parallel: parameters " + pair + " share memory";
        EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
      }
    };
    refuse({all.first(10), all.subspan(20, 10), all.first(10)}, "0 and 2");        // given twice
    refuse({all.subspan(50, 20), all.first(10), all.subspan(10, 41)}, "0 and 2");  // by one element
    refuse({all.subspan(90, 1), all, all.subspan(40, 0)}, "0 and 1");              // one inside another
    DataParallel const side_by_side(world,
                                    {all.first(50), all.subspan(50, 0), all.subspan(50)});  // what is empty is not
    DataParallel const empty_ones(world, {all.first(0), all.first(0), all});
  });
}

TEST(DataParallel, AParameterItDoesNotHaveIsRefused) {
  run_thread_ranks(1, [](Communicator& world) {
    Model model_here({{30}, {40}}, 0);
    DataParallel const ddp(world, model_here.views);
    EXPECT_EQ(ddp.parameter(1).count, 40U);
    try {
      (void)ddp.parameter(9);
      ADD_FAILURE() << "accepted";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_STREQ(error.what(), "DataParallel::parameter: index 9 of 2 parameters");
    }
  });
}

TEST(DataParallel, TrainingFollowsASerialReference) {
  constexpr int kRanks = 4;
  constexpr std::size_t kSteps = 20;
  std::vector<TensorSpec> const specs = model(11, 17);
  run_thread_ranks(kRanks, [&](Communicator& world) {
    Model model_here(specs, world.rank());
    DataParallel ddp(world, model_here.views, {.limits = {2048, 8192}, .stream = {}});
    std::vector<std::vector<double>> reference;
    for (std::size_t p = 0; p < specs.size(); ++p) {
      reference.emplace_back(specs[p].count, 0.25 * static_cast<double>(p + 1));
    }
    for (std::size_t step = 0; step < kSteps; ++step) {
      for (std::size_t const p : shuffled(specs.size(), step + 100 * static_cast<std::size_t>(world.rank()))) {
        std::span<float> const gradient = floats(ddp.gradient(p));
        std::span<float> const values = floats(ddp.parameter(p));
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          gradient[i] = values[i] - gradient_value(world.rank(), step, p, i);
        }
        ddp.mark_ready(p);
      }
      ddp.finish();
      for (std::size_t p = 0; p < specs.size(); ++p) {
        std::span<float> const values = floats(ddp.parameter(p));
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] -= 0.1F * floats(ddp.gradient(p))[i];
          reference[p][i] -= 0.1 * (reference[p][i] - average(kRanks, step, p, i));
          ASSERT_NEAR(values[i], reference[p][i], 1e-4);
        }
      }
    }
    EXPECT_EQ(ddp.generation(), 1U);
  });
}

void fill_and_mark(DataParallel& ddp, float value, bool add) {
  for (std::size_t p = 0; p < ddp.parameter_count(); ++p) {
    for (float& element : floats(ddp.gradient(p))) element = add ? element + value : value;
    ddp.mark_ready(p);
  }
}

void expect_all(DataParallel const& ddp, float value) {
  for (std::size_t p = 0; p < ddp.parameter_count(); ++p) {
    for (float const element : floats(ddp.gradient(p))) ASSERT_EQ(element, value);
  }
}

TEST(DataParallel, NoSyncAccumulatesWithoutCommunication) {
  run_thread_ranks(2, [](Communicator& world) {
    Model model_here({{30}, {40}}, world.rank());
    DataParallel ddp(world, model_here.views);
    float const mine = static_cast<float>(world.rank() + 1);
    for (int step = 0; step < 3; ++step) {
      ddp.no_sync([&] {
        fill_and_mark(ddp, mine, false);
        ddp.finish();
        EXPECT_TRUE(ddp.bucketer().timings().empty());
        ddp.no_sync([&] { fill_and_mark(ddp, 10 * mine, true); });
        EXPECT_FALSE(ddp.bucketer().sync());
        // Only one rank makes this pass: it must not meet anybody.
        if (world.rank() == 1) fill_and_mark(ddp, 0, true);
      });
      EXPECT_TRUE(ddp.bucketer().sync());
      expect_all(ddp, 11 * mine);
      fill_and_mark(ddp, 100 * mine, true);
      ddp.finish();
      expect_all(ddp, 111.0F * 1.5F);
    }
  });
}

TEST(DataParallel, NoSyncEndsThePassWhenItsBodyThrows) {
  run_thread_ranks(2, [](Communicator& world) {
    Model model_here({{30}, {40}}, world.rank());
    DataParallel ddp(world, model_here.views);
    EXPECT_THROW(ddp.no_sync([&] {
      ddp.mark_ready(1);
      throw std::runtime_error("bad batch");
    }),
                 std::runtime_error);
    EXPECT_TRUE(ddp.bucketer().sync());
    fill_and_mark(ddp, 2.0F, false);
    ddp.finish();
    expect_all(ddp, 2.0F);
  });
}

/// Two groups on every rank: parameters 0 to 3 by AdamW, 4 to 6 by SGD.
std::vector<ParameterGroup> groups_of(Model const& model_here) {
  return {{{model_here.views.begin(), model_here.views.begin() + 4}, AdamWOptions{.lr = 0.01}},
          {{model_here.views.begin() + 4, model_here.views.end()}, SgdOptions{.lr = 0.1}}};
}

TEST(DataParallel, GroupsAreCountedAsTheOptimizerCountsThem) {
  run_thread_ranks(3, [](Communicator& world) {
    std::vector<TensorSpec> const specs = model(7, 13);
    Model model_here(specs, world.rank());
    std::vector<ParameterGroup> const groups = groups_of(model_here);
    BucketerOptions options;
    options.limits = {2048, 8192};
    options.unused = UnusedGradients::find;
    DataParallel ddp(world, groups, options);
    Optimizer optimizer(groups);
    // A serial run with the average computed here, of groups alike.
    Model reference(specs, 0);
    Optimizer serial(groups_of(reference));
    for (std::size_t step = 0; step < 4; ++step) {
      ddp.no_sync([&] {
        for (std::size_t p = 0; p < 7; ++p) {
          for (float& one : floats(ddp.gradient(p))) one = 0;
        }
        ddp.finish_and_update(optimizer);  // a micro-step: updates nothing
      });
      for (std::size_t const p : shuffled(7, step)) {
        if (p == 2 || (p == 5 && world.rank() != 1)) continue;  // 2 on no rank, 5 on one
        for (std::size_t i = 0; i < floats(ddp.gradient(p)).size(); ++i) {
          floats(ddp.gradient(p))[i] = gradient_value(world.rank(), step, p, i);
        }
        ddp.mark_ready(p);
      }
      ddp.finish_and_update(optimizer);
      EXPECT_EQ(optimizer.step_count(), static_cast<std::int64_t>(step) + 1);
      serial.begin_step();
      for (std::size_t p = 0; p < 7; ++p) {
        EXPECT_EQ(ddp.has_gradient(p), p != 2);
        if (p == 2) continue;
        std::vector<float> averaged(specs[p].count);
        for (std::size_t i = 0; i < averaged.size(); ++i) {
          averaged[i] = static_cast<float>(p == 5 ? gradient_value(1, step, p, i) / 3.0 : average(3, step, p, i));
        }
        serial.update(p, std::span(averaged));
      }
    }
    for (std::size_t p = 0; p < 7; ++p) {
      for (std::size_t i = 0; i < specs[p].count; ++i) {
        ASSERT_NEAR(floats(ddp.parameter(p))[i], floats(reference.views[p])[i], 1e-3) << "parameter " << p;
        if (p == 2) {
          ASSERT_EQ(floats(ddp.parameter(p))[i], 0.75F) << "no gradient, no update, no decay";
        }
      }
    }
  });
}

TEST(DataParallel, AnOptimizerOfOtherParametersIsRefused) {
  run_thread_ranks(1, [](Communicator& world) {
    Model model_here({{30}, {40}}, 0);
    DataParallel ddp(world, model_here.views);
    Optimizer other({model_here.views.front()}, SgdOptions{});
    EXPECT_THROW(ddp.finish_and_update(other), Error);
    Optimizer optimizer(model_here.views, SgdOptions{});
    ddp.finish_and_update(optimizer);
  });
}

}  // namespace
}  // namespace weft::test
