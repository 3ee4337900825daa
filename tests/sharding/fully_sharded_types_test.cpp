#include <gtest/gtest.h>

#include "sharding/fully_sharded_training.hpp"
#include "weft/convert.hpp"
#include "weft/error.hpp"

// What is gathered, written, reduced and kept in types of their own.

namespace weft::test {
namespace {

struct Types {
  DataType parameter;
  DataType gradient;
  DataType reduced;
};

/// What backward of `rank` says of a parameter, in f32: depends on the parameter as it is gathered.
std::vector<float> gradient_of(BufferView parameter, int rank, std::size_t step, std::size_t tensor) {
  std::vector<float> values(parameter.count);
  if (values.empty()) return values;
  convert(parameter, BufferView(std::span(values)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.1F * values[i] + 0.05F * gradient_value(rank, step, tensor, i);
  }
  return values;
}

/// Rounds by way of `through`, into `to`.
void store(std::vector<float>& values, DataType through, BufferView to) {
  if (values.empty()) return;
  Buffer const rounded = Buffer::host(values.size(), through);
  convert(BufferView(std::span(values)), rounded.view());
  convert(rounded.view(), to);
}

std::vector<TensorSpec> specs_for_types() {
  return {{1}, {33}, {0}, {1021}, {64}, {2}, {777}, {1500}};
}

constexpr std::size_t kSteps = 4;

/// Replicas: f32 masters, gradients rounded and averaged in the reduce type.
std::vector<std::byte> train_reference(Communicator& world, Types const& types, Training const& t) {
  Parameters const start(t.specs);
  std::vector<Buffer> gathered;
  std::vector<Buffer> shapes;  // of gradients
  std::vector<BufferView> shape_views;
  for (BufferView const& view : start.views()) {
    gathered.push_back(Buffer::host(view.count, types.parameter));
    if (view.count != 0) convert(view, gathered.back().view());
    shapes.push_back(Buffer::host(view.count, types.reduced));
    shape_views.push_back(shapes.back().view());
  }
  std::size_t const middle = gathered.size() / 2;
  std::vector<ParameterGroup> groups{{{}, t.first}, {{}, t.second}};
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    groups[i < middle ? 0 : 1].parameters.push_back(gathered[i].view());
  }
  Optimizer optimizer(groups);
  for (std::size_t i = 0; i < gathered.size(); ++i) {  // masters are what was given, unrounded
    BufferView const from = start.views()[i];
    if (from.count != 0) std::memcpy(optimizer.master(i).data, from.data, from.bytes());
  }
  DataParallel ddp(world, shape_views);
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::vector<BufferView> gradients;
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      auto values = gradient_of(gathered[i].view(), world.rank(), step, i);
      store(values, types.gradient, ddp.gradient(i));
      ddp.mark_ready(i);
    }
    ddp.finish();
    for (std::size_t i = 0; i < gathered.size(); ++i) gradients.push_back(ddp.gradient(i));
    optimizer.step(gradients);
  }
  return bytes_of(gathered.size(), [&](std::size_t i) { return gathered[i].view(); });
}

void run_typed_pass(FullySharded& model, int rank, std::size_t step) {
  for (std::size_t unit = 0; unit < model.unit_count(); ++unit) {
    model.before_forward(unit);
    model.after_forward(unit);
  }
  for (std::size_t unit = model.unit_count(); unit-- > 0;) {
    model.before_backward(unit);
    for (std::size_t const i : parameters_of(model, unit)) {
      auto values = gradient_of(model.parameter(i), rank, step, i);
      if (!values.empty()) convert(BufferView(std::span(values)), model.gradient(i));
    }
    model.after_backward(unit);
  }
}

TEST(FullyShardedTypes, FollowAReferenceBitByBit) {
  Training const t{
      .specs = specs_for_types(), .first = AdamWOptions{.lr = 1e-3}, .second = SgdOptions{.lr = 0.01, .momentum = 0.9}};
  constexpr DataType f32 = DataType::f32;
  constexpr DataType bf16 = DataType::bf16;
  constexpr DataType f16 = DataType::f16;
  for (Types const& types :
       {Types{f32, f32, f32}, Types{bf16, bf16, bf16}, Types{bf16, bf16, f32}, Types{bf16, f32, f32},
        Types{f16, f16, f32}, Types{f16, f32, bf16}, Types{f32, f32, bf16}, Types{f32, bf16, f32}}) {
    for (int const ranks : {1, 2, 4}) {
      run_thread_ranks(ranks, [&](Communicator& world) {
        auto const expected = train_reference(world, types, t);
        Parameters const start(t.specs);
        FullyShardedOptions options;
        options.parameter_type = types.parameter;
        options.gradient_type = types.gradient;
        options.reduce_type = types.reduced;
        options.shard_size = ranks == 4 ? 2 : 0;
        options.poison = true;
        FullySharded model(world, units_of(start, t, 3), options);
        for (std::size_t step = 0; step < kSteps; ++step) {
          run_typed_pass(model, world.rank(), step);
          for (BufferView const& shard : model.gradient_shards()) EXPECT_EQ(shard.dtype, types.reduced);
          model.step();
        }
        EXPECT_EQ(gathered_bytes_of(model), expected) << ranks << " ranks, " << to_string(types.parameter) << ' '
                                                      << to_string(types.gradient) << ' ' << to_string(types.reduced);
        model.before_forward(0);
        EXPECT_EQ(model.parameter(0).dtype, types.parameter);
        model.after_forward(0);
      });
    }
  }
}

// A unit of several types is several flats; by default each keeps its own.
TEST(FullyShardedTypes, AUnitMayMixThem) {
  std::vector<TensorSpec> specs = model(12, 62);
  for (std::size_t i = 0; i < specs.size(); i += 2) specs[i].dtype = DataType::bf16;
  Training const training{.specs = specs, .first = AdamWOptions{.lr = 1e-3}, .second = AdamWOptions{.lr = 1e-4}};
  for (int const ranks : {1, 2, 3}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      auto const expected = train_replicated(world, training);
      for (std::size_t const largest : {1U, 5U}) {
        EXPECT_EQ(train_fully_sharded(world, training, {.prefetch = 2, .poison = true}, largest), expected);
      }
    });
  }
}

TEST(FullyShardedTypes, WithoutMastersParametersAreWhatIsUpdated) {
  Training const t{.specs = specs_for_types(), .first = SgdOptions{.lr = 0.1}, .second = SgdOptions{.lr = 0.1}};
  run_thread_ranks(2, [&](Communicator& world) {
    Parameters const start(t.specs);
    FullyShardedOptions options;
    options.parameter_type = DataType::bf16;
    options.optimizer.master_weights = false;
    FullySharded model(world, units_of(start, t, 3), options);
    EXPECT_EQ(model.state_bytes(), 0U);
    run_typed_pass(model, world.rank(), 0);
    model.step();
    for (std::size_t i = 0; i < model.parameter_count(); ++i) {
      std::vector<float> const master = model.master_shard(i);
      std::vector<float> values(master.size());
      if (!values.empty()) convert(model.parameter_shard(i), BufferView(std::span(values)));
      EXPECT_EQ(values, master);
    }
  });
}

TEST(FullyShardedTypes, OtherTypesAreRefused) {
  run_thread_ranks(2, [](Communicator& world) {
    Parameters const start(std::vector<TensorSpec>{{10}});
    std::vector<ShardedUnit> const units{{"only", {{start.views(), SgdOptions{}}}}};
    for (auto const option : {&FullyShardedOptions::parameter_type, &FullyShardedOptions::gradient_type,
                              &FullyShardedOptions::reduce_type}) {
      FullyShardedOptions options;
      options.*option = DataType::f64;
      try {
        FullySharded const model(world, units, options);
        ADD_FAILURE() << "accepted";
      } catch (Error const& error) {
        EXPECT_EQ(error.code(), ErrorCode::unsupported);
        EXPECT_NE(std::string(error.what()).find("_type is f64"), std::string::npos) << error.what();
      }
    }
  });
}

}  // namespace
}  // namespace weft::test
