#include "tuner.hpp"

#include <chrono>
#include <utility>

namespace weft::torch_backend {

Tuner::Tuner(std::shared_ptr<Replicas> model, MemoryAccount account, Settings const& settings)
    : model_(model), account_(std::move(account)) {
  start(model->communicator(), model->tuning_space(), settings);
}

Tuner::Tuner(std::shared_ptr<ShardedModel> model, MemoryAccount account, Settings const& settings)
    : model_(model), account_(std::move(account)) {
  start(model->communicator(), model->tuning_space(), settings);
}

void Tuner::start(Communicator& communicator, TuningSpace space, Settings const& settings) {
  for (auto& candidate : space.candidates) {
    auto const index = names_.size();
    names_.push_back(candidate.name);
    candidate.apply = [apply = std::move(candidate.apply), current = current_, index] {
      apply();
      *current = index;
    };
  }
  AutotunerOptions options;
  options.training_steps = settings.steps;
  options.most_share = 1;
  options.workload = settings.workload;
  MemoryAccount::Binding const bound(account_);
  as_torch([&] { autotuner_.emplace(communicator, std::move(space), options); });
}

void Tuner::end_step(bool counts, std::optional<double> seconds) {
  MemoryAccount::Binding const bound(account_);
  as_torch([&] {
    if (!seconds) return autotuner_->end_step(counts);
    std::chrono::duration<double> const took(*seconds);
    autotuner_->end_step(std::chrono::duration_cast<std::chrono::nanoseconds>(took), counts);
  });
}

}  // namespace weft::torch_backend
