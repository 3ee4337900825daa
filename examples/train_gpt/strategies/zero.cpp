#include <algorithm>
#include <optional>
#include <utility>

#include <weft/zero_optimizer.hpp>

#include "passes.hpp"
#include "strategies/of_sharded.hpp"
#include "strategies/sharded_setup.hpp"
#include "strategies/strategy.hpp"
#include "unit_cast.hpp"

namespace train_gpt {
namespace {

/// A forward pass waits for each parameter where it first needs it.
class ZeroTensors final : public Tensors {
 public:
  ZeroTensors(GptParameters const& parameters, weft::ZeroOptimizer& zero, ComputeClock& clock)
      : zero_(zero), clock_(clock), cast_(parameters), arrived_(parameters.tensors().size(), 0) {}

  /// Parameters travel again.
  void begin_step() { std::fill(arrived_.begin(), arrived_.end(), 0); }
  void set_accumulating(bool accumulating) noexcept { accumulating_ = accumulating; }

  void enter(Pass, std::size_t) override { cast_.enter(); }
  [[nodiscard]] float const* parameter(std::size_t index) override {
    if (arrived_[index] == 0) clock_.pause([&] { zero_.wait_parameter(index); });
    arrived_[index] = 1;
    return cast_.parameter(index, zero_.parameter(index));
  }
  [[nodiscard]] float* gradient(std::size_t index) override {
    return cast_.gradient(index, zero_.gradient(index), accumulating_);
  }
  void gradient_done(std::size_t index) override {
    cast_.store_gradient(index, zero_.gradient(index));
    zero_.mark_ready(index);
  }
  [[nodiscard]] float keep() const override { return accumulating_ ? 1.0F : 0.0F; }

 private:
  weft::ZeroOptimizer& zero_;
  ComputeClock& clock_;
  UnitCast cast_;
  std::vector<char> arrived_;  ///< by tensor, in this step
  bool accumulating_ = false;
};

/// Every rank updates its shard of everything.
class Zero final : public OfSharded<Strategy> {
 public:
  Zero(weft::Communicator communicator, Options const& options, GptModel& model, std::vector<weft::Buffer> const& start)
      : OfSharded(options),
        communicator_(std::move(communicator)),
        model_(model),
        zero_(communicator_, {{views_of(start), options.optimizer_options()}},
              zero_options(options, control(), bucketer(options))),
        tensors_(model.parameters(), zero_, clock_) {}

  [[nodiscard]] StepTimes step(std::span<Batch const> batches, double lr) override;
  [[nodiscard]] std::vector<Traffic> traffic() const override {
    return {{"all_gather", gathers_}, {"reduce_scatter", reductions_}};
  }
  [[nodiscard]] std::span<float const> next_byte_logits(std::span<std::uint8_t const> text) override {
    zero_.wait_parameters();
    return model_.next_byte_logits(text, tensors_);
  }

  [[nodiscard]] weft::TuningSpace tuning_space() override { return weft::tuning_space(zero_); }
  [[nodiscard]] std::int64_t applied_steps() const override { return zero_.step_count(); }

 private:
  [[nodiscard]] weft::ShardedOptimizer& sharded() override { return zero_; }
  [[nodiscard]] weft::ShardedOptimizer const& sharded() const override { return zero_; }
  void record(weft::TimePoint start);

  weft::Communicator communicator_;
  GptModel& model_;
  weft::ZeroOptimizer zero_;
  ComputeClock clock_;
  ZeroTensors tensors_;
  std::optional<weft::TimePoint> last_end_;
  std::vector<weft::BucketTiming> gathers_;
  std::vector<weft::BucketTiming> reductions_;
};

/// Begins where the last step ended: the parameters that it updated have travelled since, under nothing at first.
StepTimes Zero::step(std::span<Batch const> batches, double lr) {
  StepTimes times;
  times.start = last_end_.value_or(std::chrono::steady_clock::now());
  times.forward.reserve(zero_.parameter_count() + batches.size());
  tensors_.begin_step();
  run_passes(model_, batches, tensors_, control().loss_scale(), clock_, times, [&](std::size_t i, auto const& pass) {
    tensors_.set_accumulating(i > 0);
    i + 1 < batches.size() ? zero_.no_sync(pass) : pass();
  });
  zero_.set_lr(lr);
  zero_.step();
  control().end_step();
  times.optimizer.assign(zero_.updates().begin(), zero_.updates().end());
  times.end = std::chrono::steady_clock::now();
  record(times.start);
  last_end_ = times.end;
  return times;
}

/// The all_gathers that the step before launched, and this one's reduce_scatters.
void Zero::record(weft::TimePoint start) {
  auto const reductions = zero_.reductions();
  reductions_.assign(reductions.begin(), reductions.end());
  gathers_ = since(start, zero_.gathers());
}

}  // namespace

std::unique_ptr<Strategy> make_zero(weft::Communicator communicator, Options const& options, GptModel& model,
                                    std::vector<weft::Buffer> start) {
  return std::make_unique<Zero>(std::move(communicator), options, model, start);
}

}  // namespace train_gpt
