#include <algorithm>
#include <utility>

#include <weft/convert.hpp>
#include <weft/data_parallel.hpp>

#include "ddp_tensors.hpp"
#include "passes.hpp"
#include "strategies/strategy.hpp"

namespace train_gpt {
namespace {

/// Gradients are averaged, every rank updates everything.
class Replicated final : public Strategy {
 public:
  Replicated(weft::Communicator communicator, Options const& options, GptModel& model, std::vector<weft::Buffer> start)
      : Strategy(options),
        communicator_(std::move(communicator)),
        model_(model),
        memory_(std::move(start)),
        parameters_(views_of(memory_)),
        ddp_(communicator_, parameters_, bucketer(options)),
        optimizer_(parameters_, options.optimizer_options(), options.optimizer_settings()),
        tensors_(model.parameters(), parameters_, ddp_) {}

  [[nodiscard]] StepTimes step(std::span<Batch const> batches, double lr) override;
  [[nodiscard]] std::vector<Traffic> traffic() const override { return {{"bucket", buckets_}}; }
  [[nodiscard]] std::span<float const> next_byte_logits(std::span<std::uint8_t const> text) override {
    return model_.next_byte_logits(text, tensors_);
  }

  [[nodiscard]] std::int64_t applied_steps() const override { return optimizer_.step_count(); }
  void set_applied_steps(std::int64_t steps) override { optimizer_.set_step_count(steps); }
  [[nodiscard]] std::size_t state_count() const override { return optimizer_.state_names(0).size(); }
  [[nodiscard]] std::vector<float> values(std::size_t index) override {
    auto const* const from = static_cast<float const*>(optimizer_.master(index).data);
    return {from, from + parameters_[index].count};
  }
  void set_values(std::size_t index, std::span<float const> values) override {
    std::copy(values.begin(), values.end(), static_cast<float*>(optimizer_.master(index).data));
    if (parameters_[index].dtype != weft::DataType::f32) weft::convert(values, parameters_[index]);
  }
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) override {
    return optimizer_.state(index, which);
  }
  void set_state(std::size_t index, std::size_t which, std::span<float const> values) override {
    optimizer_.set_state(index, which, values);
  }

  [[nodiscard]] weft::TuningSpace tuning_space() override { return weft::tuning_space(ddp_); }

  void save(weft::CheckpointSaver& saver, std::span<weft::NamedParameter const> parameters,
            weft::CheckpointInfo const& info) override {
    weft::save(saver, communicator_, optimizer_, parameters, info, compressor());
  }
  void load(weft::Checkpoint const& checkpoint, weft::Communicator& world,
            std::span<weft::NamedParameter const> parameters) override {
    weft::load(checkpoint, world, optimizer_, parameters, compressor());
  }

 private:
  void update_with_norm(StepTimes& times);

  weft::Communicator communicator_;
  GptModel& model_;
  std::vector<weft::Buffer> memory_;
  std::vector<weft::BufferView> parameters_;
  weft::DataParallel ddp_;
  weft::Optimizer optimizer_;
  DdpTensors<weft::DataParallel> tensors_;
  ComputeClock clock_;
  std::vector<weft::BucketTiming> buckets_;
};

StepTimes Replicated::step(std::span<Batch const> batches, double lr) {
  StepTimes times;
  times.start = std::chrono::steady_clock::now();
  run_passes(model_, batches, tensors_, control().loss_scale(), clock_, times, [&](std::size_t i, auto const& pass) {
    tensors_.set_accumulating(i > 0);
    i + 1 < batches.size() ? ddp_.no_sync(pass) : pass();
  });
  optimizer_.set_lr(lr);
  if (control().needs_norm()) {
    update_with_norm(times);
  } else {
    update_as_averages_arrive(ddp_, optimizer_, parameters_.size(), times);
  }
  times.end = std::chrono::steady_clock::now();
  auto const buckets = ddp_.bucketer().timings();
  buckets_.assign(buckets.begin(), buckets.end());
  return times;
}

void Replicated::update_with_norm(StepTimes& times) {
  ddp_.finish();
  clock_.begin(times.optimizer);
  std::vector<weft::BufferView> gradients;
  for (std::size_t i = 0; i < parameters_.size(); ++i) gradients.push_back(ddp_.gradient(i));
  auto const norm = weft::gradient_norm(gradients, weft::NormType::l2, control().inv_scale());
  optimizer_.step(gradients, control().inputs(norm));
  control().end_step();
  clock_.end();
}

}  // namespace

std::unique_ptr<Strategy> make_replicated(weft::Communicator communicator, Options const& options, GptModel& model,
                                          std::vector<weft::Buffer> start) {
  return std::make_unique<Replicated>(std::move(communicator), options, model, std::move(start));
}

}  // namespace train_gpt
