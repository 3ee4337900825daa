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

/// The weft::Autotuner of a wrapped model, which it keeps alive. Not thread-safe; Python's lock is not needed.
class Tuner {
 public:
  struct Settings {
    std::size_t steps;     ///< within how many steps it settles
    std::string workload;  ///< describes what else decides how long a step takes
  };
  /// Collective: applies what an earlier run found. Memory for settings is charged to the account.
  Tuner(std::shared_ptr<Replicas> model, MemoryAccount account, Settings const& settings);
  Tuner(std::shared_ptr<ShardedModel> model, MemoryAccount account, Settings const& settings);

  /// Call it after each step, on all ranks; see Autotuner. `seconds`: the step's time, instead of the time since the
  /// last call.
  void end_step(bool counts, std::optional<double> seconds);
  /// All settings that may be tried; the first one is the initial setting.
  [[nodiscard]] std::vector<std::string> const& candidates() const noexcept { return names_; }
  /// The current setting.
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
