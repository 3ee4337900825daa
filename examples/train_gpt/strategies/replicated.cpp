#include <utility>

#include <weft/data_parallel.hpp>

#include "ddp_tensors.hpp"
#include "passes.hpp"
#include "strategies/whole_replica.hpp"

namespace train_gpt {
namespace {

/// Gradients are averaged, every rank updates everything.
class Replicated final : public WholeReplica {
 public:
  Replicated(weft::Communicator communicator, Options const& options, GptModel& model, std::vector<weft::Buffer> start)
      : WholeReplica(std::move(communicator), options, model, std::move(start)),
        ddp_(communicator_, parameters_, bucketer(options)),
        tensors_(model.parameters(), parameters_, ddp_) {}

  [[nodiscard]] StepTimes step(std::span<Batch const> batches, double lr) override;
  [[nodiscard]] std::vector<Traffic> traffic() const override { return {{"bucket", buckets_}}; }
  [[nodiscard]] std::span<float const> next_byte_logits(std::span<std::uint8_t const> text) override {
    return model_.next_byte_logits(text, tensors_);
  }
  [[nodiscard]] weft::TuningSpace tuning_space() override { return weft::tuning_space(ddp_); }

 private:
  void update_with_norm(StepTimes& times);

  weft::DataParallel ddp_;
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
