#pragma once

#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "cuda/fake/fake_sharded.hpp"
#include "sharding/fully_sharded_training.hpp"

namespace weft::test {

using FakeFullySharded = FakeSharded;

/// Units whose values are those of some on the host, in the GPU's memory.
class UnitsOnGpu {
 public:
  UnitsOnGpu(FakeGpu const& gpu, std::vector<ShardedUnit> units) : units_(std::move(units)) {
    for (ShardedUnit& unit : units_) {
      for (ParameterGroup& group : unit.groups) {
        for (BufferView& view : group.parameters) view = copied_to(gpu, memory_, view);
      }
    }
  }
  [[nodiscard]] std::vector<ShardedUnit> const& units() const { return units_; }

 private:
  std::vector<Buffer> memory_;
  std::vector<ShardedUnit> units_;
};

/// What backward writes: scaled, and perhaps not finite.
struct UnitGradients {
  float scale = 1;
  std::function<bool(std::size_t step, std::size_t tensor)> overflows = [](std::size_t, std::size_t) { return false; };

  void write(BufferView gradient, BufferView parameter, int rank, std::size_t step, std::size_t tensor,
             bool add) const {
    write_gradient(gradient, parameter, rank, step, tensor, add);
    if (gradient.dtype != DataType::f32 || gradient.count == 0) return;
    auto* const values = static_cast<float*>(gradient.data);
    for (std::size_t e = 0; e < gradient.count && scale != 1; ++e) values[e] *= scale;
    if (overflows(step, tensor)) values[gradient.count - 1] = std::numeric_limits<float>::infinity();
  }
};

/// One rank's training, where `compute` is; on the host there is none.
class UnitTrainer {
 public:
  UnitTrainer(FakeGpu& gpu, FullySharded& model, Training const& t, int rank, Stream* compute,
              UnitGradients gradients = {})
      : gpu_(gpu), model_(model), t_(t), rank_(rank), compute_(compute), gradients_(std::move(gradients)) {}

  void step(std::size_t step) {
    for (std::size_t number = 0; number + 1 < t_.passes; ++number) {
      model_.no_sync([&] { pass(step, number); });
    }
    pass(step, t_.passes - 1);
    model_.step();
  }
  /// Forward checks that units are all there, backward uses them.
  void pass(std::size_t step, std::size_t number) {
    for (std::size_t unit = 0; unit < model_.unit_count(); ++unit) {
      model_.before_forward(unit);
      model_.after_forward(unit);
    }
    for (std::size_t unit = model_.unit_count(); unit-- > 0;) {
      model_.before_backward(unit);
      for (std::size_t const i : parameters_of(model_, unit)) backward(unit, i, step, number);
      model_.after_backward(unit);
    }
  }
  /// The bytes of all parameters, as they are gathered.
  [[nodiscard]] std::vector<std::byte> gathered() {
    std::vector<std::byte> all;
    for (std::size_t unit = 0; unit < model_.unit_count(); ++unit) {
      model_.before_forward(unit);
      for (std::size_t const i : parameters_of(model_, unit)) {
        auto const read = [&all, view = model_.parameter(i)] {
          auto const* const bytes = static_cast<std::byte const*>(view.data);
          all.insert(all.end(), bytes, bytes + view.bytes());
        };
        compute_ != nullptr ? launch(gpu_, *compute_, read) : read();
      }
      model_.after_forward(unit);
    }
    if (compute_ != nullptr) compute_->synchronize();
    return all;
  }

 private:
  void backward(std::size_t unit, std::size_t i, std::size_t step, std::size_t number) {
    if (t_.skips(step, i)) return model_.mark_unused(i);
    auto const kernel = [this, to = model_.gradient(i), from = model_.parameter(i), i, at = step * t_.passes + number,
                         add = model_.holds_gradients(unit)] { gradients_.write(to, from, rank_, at, i, add); };
    compute_ != nullptr ? launch(gpu_, *compute_, kernel) : kernel();
  }

  FakeGpu& gpu_;
  FullySharded& model_;
  Training const& t_;
  int rank_;
  Stream* compute_;
  UnitGradients gradients_;
};

using AfterStep = std::function<void(FullySharded&, std::size_t step)>;

inline std::vector<std::byte> train_on_host(Communicator& world, FakeGpu& gpu, Training const& t,
                                            FullyShardedOptions options, UnitGradients const& gradients = {},
                                            AfterStep const& after = {}) {
  options.optimizer = t.settings;
  options.hybrid_sum = HybridSum::by_group;  // as on a GPU
  Parameters const values(t.specs);
  FullySharded model(world, units_of(values, t, 4), options);
  UnitTrainer trainer(gpu, model, t, world.rank(), nullptr, gradients);
  for (std::size_t step = 0; step < t.steps; ++step) {
    trainer.step(step);
    if (after) after(model, step);
  }
  return trainer.gathered();
}

inline std::vector<std::byte> train_on_gpu(Communicator& world, FakeGpu& gpu, Training const& t,
                                           FullyShardedOptions options, UnitGradients const& gradients = {},
                                           AfterStep const& after = {}) {
  options.optimizer = t.settings;
  Stream compute = options.compute ? *options.compute : gpu.make_stream();
  options.compute = compute;
  Parameters const values(t.specs);
  UnitsOnGpu const parameters(gpu, units_of(values, t, 4));
  FullySharded model(world, parameters.units(), options);
  UnitTrainer trainer(gpu, model, t, world.rank(), &compute, gradients);
  for (std::size_t step = 0; step < t.steps; ++step) {
    auto const waits = gpu.host_waits_here();
    auto const allocated = gpu.count_here("cudaMalloc");
    trainer.step(step);
    // The first no_sync() takes memory.
    EXPECT_TRUE(step == 0 || gpu.host_waits_here() == waits) << "step " << step;
    EXPECT_TRUE(step == 0 || gpu.count_here("cudaMalloc") == allocated) << "step " << step;
    if (after) after(model, step);
  }
  EXPECT_TRUE(model.gathers().empty() && model.reductions().empty() && model.updates().empty());
  return trainer.gathered();
}

inline std::vector<TensorSpec> units_with_types(bool mixed) {
  std::vector<TensorSpec> specs = awkward();
  for (std::size_t i = 1; i < specs.size() && mixed; i += 3) specs[i].dtype = DataType::bf16;
  return specs;
}

}  // namespace weft::test
