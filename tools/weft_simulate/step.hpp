#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "weft/overlap.hpp"
#include "weft_simulate/settings.hpp"

namespace weft::simulate_tool {

/// The time of a training step as each rank sees it; taken from the last of a few steps.
struct StepResult {
  std::vector<OverlapReport> ranks;
  std::uint64_t messages = 0;  ///< of all steps together
  std::uint64_t bytes = 0;

  /// The rank whose step took longest.
  [[nodiscard]] std::size_t slowest() const;
};

/// Runs data-parallel steps on simulated ranks with the library's own Bucketer: forward, then backward from the last
/// layer to the first. Each layer's gradient is marked ready as soon as it is computed.
[[nodiscard]] StepResult simulate_step(Settings const& settings);

/// The slowest rank's overlap report.
void print_step(std::FILE* out, Settings const& settings, StepResult const& result);
[[nodiscard]] nlohmann::ordered_json step_json(Settings const& settings, StepResult const& result);

}  // namespace weft::simulate_tool
