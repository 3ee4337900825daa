#include "strategy.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <weft/data_parallel.hpp>
#include <weft/zero_optimizer.hpp>

namespace train_gpt {
namespace {

/// Gradients are averaged, every rank updates everything.
class Replicated final : public Strategy {
 public:
  Replicated(weft::Communicator communicator, Options const& options, GptModel& model)
      : communicator_(std::move(communicator)),
        model_(model),
        optimizer_(model.parameters(), weft::AdamWOptions{.lr = options.lr}),
        ddp_(communicator_, model.parameters(), options.bucketer()) {}

  void restore(Checkpoint const& checkpoint) override {
    restore_moments(checkpoint, model_,
                    [&](auto index, auto which, auto values) { optimizer_.set_state(index, which, values); });
    optimizer_.set_step_count(checkpoint.step);
  }
  [[nodiscard]] StepTimes step(Batch const& batch, float lr) override {
    optimizer_.set_lr(lr);
    StepTimes times = train_step(model_, ddp_, optimizer_, batch);
    auto const buckets = ddp_.bucketer().timings();
    buckets_.assign(buckets.begin(), buckets.end());
    return times;
  }
  [[nodiscard]] std::vector<Traffic> traffic() const override { return {{"bucket", buckets_}}; }
  [[nodiscard]] std::vector<float> moment(std::size_t index, std::size_t which) override {
    return optimizer_.state(index, which);
  }

 private:
  weft::Communicator communicator_;
  GptModel& model_;
  weft::Optimizer optimizer_;
  weft::DataParallel ddp_;
  std::vector<weft::BucketTiming> buckets_;
};

/// Every rank updates its shard of everything.
class Sharded final : public Strategy {
 public:
  Sharded(weft::Communicator communicator, Options const& options, GptModel& model)
      : communicator_(std::move(communicator)),
        model_(model),
        zero_(communicator_, {{model.parameters(), weft::AdamWOptions{.lr = options.lr}}}, zero_options(options)) {
    use_parameters();
  }

  void restore(Checkpoint const& checkpoint) override {
    restore_moments(checkpoint, model_,
                    [&](auto index, auto which, auto values) { zero_.set_state(index, which, values); });
    zero_.set_step_count(checkpoint.step);
  }
  [[nodiscard]] StepTimes step(Batch const& batch, float lr) override;
  [[nodiscard]] std::vector<Traffic> traffic() const override {
    return {{"all_gather", gathers_}, {"reduce_scatter", reductions_}};
  }
  void finish() override { zero_.wait_parameters(); }
  [[nodiscard]] std::vector<float> moment(std::size_t index, std::size_t which) override {
    return zero_.state(index, which);
  }

 private:
  static weft::ZeroOptions zero_options(Options const& options) {
    weft::ZeroOptions zero;
    zero.stage = options.strategy == "zero1" ? weft::ZeroStage::optimizer_states : weft::ZeroStage::gradients;
    zero.buckets = options.bucketer();
    zero.buckets.rebuild = options.resume.empty();  // states are loaded into shards that stay
    return zero;
  }
  void use_parameters() {
    std::vector<weft::BufferView> parameters;
    for (std::size_t i = 0; i < zero_.parameter_count(); ++i) parameters.push_back(zero_.parameter(i));
    model_.use_parameters(std::move(parameters));
    generation_ = zero_.generation();
  }
  void record(weft::TimePoint start);

  weft::Communicator communicator_;
  GptModel& model_;
  weft::ZeroOptimizer zero_;
  std::size_t generation_ = 0;
  std::optional<weft::TimePoint> last_end_;
  std::vector<weft::BucketTiming> gathers_;
  std::vector<weft::BucketTiming> reductions_;
};

/// Begins where the last step ended: the parameters that it updated have travelled since, under nothing at first.
StepTimes Sharded::step(Batch const& batch, float lr) {
  using Clock = std::chrono::steady_clock;
  StepTimes times;
  auto now = Clock::now();
  times.start = last_end_.value_or(now);
  times.forward.reserve(zero_.parameter_count() + 1);
  times.forward.push_back({now, now});
  times.loss = model_.forward(batch, [&](std::size_t i) {
    times.forward.back().end = Clock::now();
    zero_.wait_parameter(i);
    now = Clock::now();
    times.forward.push_back({now, now});
  });
  times.forward.back().end = times.backward.start = Clock::now();
  model_.backward(
      batch, [&](std::size_t i) { return zero_.gradient(i); }, [&](std::size_t i) { zero_.mark_ready(i); });
  times.backward.end = Clock::now();
  zero_.set_lr(lr);
  zero_.step();
  times.end = Clock::now();
  times.optimizer.assign(zero_.updates().begin(), zero_.updates().end());
  if (zero_.generation() != generation_) use_parameters();
  record(times.start);
  last_end_ = times.end;
  return times;
}

/// The all_gathers that the step before launched, and this one's reduce_scatters.
void Sharded::record(weft::TimePoint start) {
  auto const reductions = zero_.reductions();
  reductions_.assign(reductions.begin(), reductions.end());
  gathers_.clear();
  for (weft::BucketTiming gather : zero_.gathers()) {
    gather.ready = std::max(gather.ready, start);
    gather.started = std::max(gather.started, start);
    gather.finished = std::max(gather.finished, start);
    gathers_.push_back(gather);
  }
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(weft::Communicator communicator, Options const& options, GptModel& model) {
  if (options.strategy == "ddp") return std::make_unique<Replicated>(std::move(communicator), options, model);
  return std::make_unique<Sharded>(std::move(communicator), options, model);
}

}  // namespace train_gpt
