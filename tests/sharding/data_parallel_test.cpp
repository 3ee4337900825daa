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

}  // namespace
}  // namespace weft::test
