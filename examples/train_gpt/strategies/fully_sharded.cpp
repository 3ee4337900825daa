#include <optional>
#include <utility>

#include <weft/fully_sharded.hpp>

#include "passes.hpp"
#include "strategies/of_sharded.hpp"
#include "strategies/sharded_setup.hpp"
#include "strategies/strategy.hpp"
#include "strategies/unit_turns.hpp"
#include "unit_cast.hpp"

namespace train_gpt {
namespace {

/// A pass brings each of the model's units here for as long as it uses it.
class UnitTensors final : public Tensors {
 public:
  UnitTensors(GptParameters const& parameters, weft::FullySharded& sharded, ComputeClock& clock)
      : sharded_(sharded), clock_(clock), turns_(sharded), cast_(parameters) {}

  void enter(Pass pass, std::size_t unit) override {
    cast_.enter();
    auto const wait = [&] { turns_.enter(pass, unit); };
    if (training_) {
      clock_.pause(wait);
    } else {
      wait();
    }
  }
  void leave(Pass pass, std::size_t unit) override { turns_.leave(pass, unit); }

  [[nodiscard]] float const* parameter(std::size_t index) override {
    return cast_.parameter(index, sharded_.parameter(index));
  }
  [[nodiscard]] float* gradient(std::size_t index) override {
    return cast_.gradient(index, sharded_.gradient(index), turns_.adds());
  }
  void gradient_done(std::size_t index) override { cast_.store_gradient(index, sharded_.gradient(index)); }
  [[nodiscard]] float keep() const override { return turns_.adds() ? 1.0F : 0.0F; }

  void set_training(bool training) noexcept { training_ = training; }

 private:
  weft::FullySharded& sharded_;
  ComputeClock& clock_;
  UnitTurns turns_;
  UnitCast cast_;
  bool training_ = false;  ///< the clock runs
};

/// No rank ever has the whole model.
class FullyShardedStrategy final : public OfSharded<Strategy> {
 public:
  FullyShardedStrategy(weft::Communicator communicator, Options const& options, GptModel& model)
      : OfSharded(options),
        communicator_(std::move(communicator)),
        model_(model),
        sharded_(communicator_, units_of(model.parameters(), options),
                 fully_sharded_options(options, model.parameters(), communicator_.size(), control())),
        tensors_(model.parameters(), sharded_, clock_) {}

  [[nodiscard]] StepTimes step(std::span<Batch const> batches, double lr) override;
  [[nodiscard]] std::vector<Traffic> traffic() const override {
    return {{"all_gather", gathers_}, {"reduce_scatter", reductions_}};
  }
  [[nodiscard]] std::span<float const> next_byte_logits(std::span<std::uint8_t const> text) override {
    return model_.next_byte_logits(text, tensors_);
  }

  [[nodiscard]] weft::TuningSpace tuning_space() override { return weft::tuning_space(sharded_); }
  [[nodiscard]] std::int64_t applied_steps() const override { return sharded_.step_count(); }

 private:
  [[nodiscard]] weft::ShardedOptimizer& sharded() override { return sharded_; }
  [[nodiscard]] weft::ShardedOptimizer const& sharded() const override { return sharded_; }
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
