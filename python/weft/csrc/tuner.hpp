#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "replicas.hpp"
#include "sharded_model.hpp"
#include "weft/autotuner.hpp"

namespace weft::torch_backend {

/// weft::Autotuner of a wrapped model. Keeps the model. Not thread-safe; the interpreter's lock is not needed.
class Tuner {
 public:
  struct Settings {
    std::size_t steps;     ///< in which it settles
    std::string workload;  ///< what else decides how long a step takes
  };
  /// Collective: applies what an earlier run found. What settings take is charged to the account.
  Tuner(std::shared_ptr<Replicas> model, MemoryAccount account, Settings const& settings);
  Tuner(std::shared_ptr<ShardedModel> model, MemoryAccount account, Settings const& settings);

  /// After each step, on all ranks; see Autotuner. `seconds`: what it took instead of the time since the last call.
  void end_step(bool counts, std::optional<double> seconds);
  /// Of all settings that may be tried: the first is that of the beginning.
  [[nodiscard]] std::vector<std::string> const& candidates() const noexcept { return names_; }
  /// What is set now.
  [[nodiscard]] std::string const& setting() const noexcept { return names_[*current_]; }
  [[nodiscard]] std::optional<TuningOutcome> const& outcome() const noexcept { return autotuner_->outcome(); }

 private:
  void start(Communicator& communicator, TuningSpace space, Settings const& settings);

  std::shared_ptr<void> model_;
  MemoryAccount account_;
  std::vector<std::string> names_;
  std::shared_ptr<std::size_t> current_ = std::make_shared<std::size_t>(0);
  std::optional<Autotuner> autotuner_;
};

}  // namespace weft::torch_backend
