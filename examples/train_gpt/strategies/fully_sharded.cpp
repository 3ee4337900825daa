#include <algorithm>
#include <optional>
#include <utility>

#include <weft/convert.hpp>
#include <weft/fully_sharded.hpp>

#include "passes.hpp"
#include "strategies/strategy.hpp"
#include "unit_cast.hpp"

namespace train_gpt {
namespace {

/// A pass brings each of the model's units here for as long as it uses it.
class UnitTensors final : public Tensors {
 public:
  UnitTensors(GptParameters const& parameters, weft::FullySharded& sharded, ComputeClock& clock)
      : sharded_(sharded), clock_(clock), cast_(parameters) {}

  void enter(Pass pass, std::size_t unit) override {
    cast_.enter();
    auto const wait = [&] {
      if (pass == Pass::forward) {
        sharded_.before_forward(unit);
      } else {
        sharded_.before_backward(unit);
      }
    };
    if (training_) {
      clock_.pause(wait);
    } else {
      wait();
    }
    adds_ = sharded_.holds_gradients(unit);
  }
  void leave(Pass pass, std::size_t unit) override {
    if (pass == Pass::forward) {
      sharded_.after_forward(unit);
    } else {
      sharded_.after_backward(unit);
    }
  }

  [[nodiscard]] float const* parameter(std::size_t index) override {
    return cast_.parameter(index, sharded_.parameter(index));
  }
  [[nodiscard]] float* gradient(std::size_t index) override {
    return cast_.gradient(index, sharded_.gradient(index), adds_);
  }
  void gradient_done(std::size_t index) override { cast_.store_gradient(index, sharded_.gradient(index)); }
  [[nodiscard]] float keep() const override { return adds_ ? 1.0F : 0.0F; }

  void set_training(bool training) noexcept { training_ = training; }

 private:
  weft::FullySharded& sharded_;
  ComputeClock& clock_;
  UnitCast cast_;
  bool adds_ = false;
  bool training_ = false;  ///< the clock runs
};

std::vector<weft::ShardedUnit> units_of(GptParameters const& parameters, Options const& options) {
  std::vector<weft::ShardedUnit> units;
  for (GptParameters::Unit const& unit : parameters.units()) {
    weft::ParameterGroup group{{}, options.optimizer_options()};
    for (std::size_t i = unit.first; i < unit.first + unit.count; ++i) {
      group.parameters.push_back({nullptr, parameters.tensors()[i].count, options.parameter_type()});
    }
    units.push_back({unit.name, {std::move(group)}});
  }
  return units;
}

/// Rounded to what is trained, as the other strategies start.
void initialise(GptParameters const& parameters, std::uint64_t seed, std::size_t index,
                weft::BufferView const& values) {
  if (values.dtype == weft::DataType::f32) {
    return parameters.initialise(index, seed, {static_cast<float*>(values.data), values.count});
  }
  weft::Buffer const exact = weft::Buffer::host(values.count, weft::DataType::f32);
  parameters.initialise(index, seed, exact.as<float>());
  weft::convert(exact.view(), values);
}

weft::FullyShardedOptions sharded_options(Options const& options, GptParameters const& parameters, int ranks,
                                          StepControl& control) {
  weft::FullyShardedOptions sharded;
  sharded.first_values = [&parameters, seed = options.seed](std::size_t index, weft::BufferView const& values) {
    initialise(parameters, seed, index, values);
  };
  sharded.prefetch = static_cast<std::size_t>(options.prefetch);
  sharded.gather_cap = static_cast<std::size_t>(options.gather_cap_mb * (1 << 20));
  sharded.reshard_after_forward = !options.keep_gathered;
  sharded.hybrid_sum = options.sum_by_group ? weft::HybridSum::by_group : weft::HybridSum::rank_order;
  if (options.strategy == "hsdp") sharded.shard_size = options.group_size(ranks);
  sharded.optimizer = options.optimizer_settings();
  sharded.gradients = control.policy();
  return sharded;
}

/// No rank ever has the whole model.
class FullyShardedStrategy final : public Strategy {
 public:
  FullyShardedStrategy(weft::Communicator communicator, Options const& options, GptModel& model)
      : Strategy(options),
        communicator_(std::move(communicator)),
        model_(model),
        sharded_(communicator_, units_of(model.parameters(), options),
                 sharded_options(options, model.parameters(), communicator_.size(), control())),
        tensors_(model.parameters(), sharded_, clock_) {}

  [[nodiscard]] StepTimes step(std::span<Batch const> batches, double lr) override;
  [[nodiscard]] std::vector<Traffic> traffic() const override {
    return {{"all_gather", gathers_}, {"reduce_scatter", reductions_}};
  }
  [[nodiscard]] std::span<float const> next_byte_logits(std::span<std::uint8_t const> text) override {
    return model_.next_byte_logits(text, tensors_);
  }

  [[nodiscard]] std::int64_t applied_steps() const override { return sharded_.step_count(); }
  void set_applied_steps(std::int64_t steps) override { sharded_.set_step_count(steps); }
  [[nodiscard]] std::size_t state_count() const override { return sharded_.state_names(0).size(); }
  [[nodiscard]] std::vector<float> values(std::size_t index) override { return sharded_.master(index); }
  void set_values(std::size_t index, std::span<float const> values) override { sharded_.set_parameter(index, values); }
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) override {
    return sharded_.state(index, which);
  }
  void set_state(std::size_t index, std::size_t which, std::span<float const> values) override {
    sharded_.set_state(index, which, values);
  }

  void save(weft::CheckpointSaver& saver, std::span<weft::NamedParameter const> parameters,
            weft::CheckpointInfo const& info) override {
    weft::save(saver, sharded_, parameters, info);
  }
  void load(weft::Checkpoint const& checkpoint, weft::Communicator& world,
            std::span<weft::NamedParameter const> parameters) override {
    weft::load(checkpoint, world, sharded_, parameters);
  }

 private:
  void record(weft::TimePoint start);

  weft::Communicator communicator_;
  GptModel& model_;
  weft::FullySharded sharded_;
  ComputeClock clock_;
  UnitTensors tensors_;
  std::optional<weft::TimePoint> last_end_;
  std::vector<weft::BucketTiming> gathers_;
  std::vector<weft::BucketTiming> reductions_;
};

/// Begins where the last step ended: the first units, which it updated, have travelled since.
StepTimes FullyShardedStrategy::step(std::span<Batch const> batches, double lr) {
  StepTimes times;
  times.start = last_end_.value_or(std::chrono::steady_clock::now());
  tensors_.set_training(true);
  run_passes(model_, batches, tensors_, control().loss_scale(), clock_, times,
             [&](std::size_t i, auto const& pass) { i + 1 < batches.size() ? sharded_.no_sync(pass) : pass(); });
  tensors_.set_training(false);
  sharded_.set_lr(lr);
  sharded_.step();
  control().end_step();
  times.optimizer.assign(sharded_.updates().begin(), sharded_.updates().end());
  times.end = std::chrono::steady_clock::now();
  record(times.start);
  last_end_ = times.end;
  return times;
}

/// The gathers that the step before launched count from its end on.
void FullyShardedStrategy::record(weft::TimePoint start) {
  auto const reductions = sharded_.reductions();
  reductions_.assign(reductions.begin(), reductions.end());
  gathers_ = since(start, sharded_.gathers());
}

}  // namespace

std::unique_ptr<Strategy> make_fully_sharded(weft::Communicator communicator, Options const& options, GptModel& model) {
  return std::make_unique<FullyShardedStrategy>(std::move(communicator), options, model);
}

}  // namespace train_gpt
