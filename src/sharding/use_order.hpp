#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace weft {

enum class Phase { forward, backward };

/// A unit's turn in a pass.
struct Use {
  std::size_t unit = 0;
  Phase phase = Phase::forward;

  friend bool operator==(Use const&, Use const&) = default;
};

/// Predicts which units are used next: as in the step before, and in the first step forward in order and backward in
/// reverse. Not thread-safe.
class UseOrder {
 public:
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  /// Of a step with more passes over all units than this, as an evaluation has, only the last ones are remembered.
  static constexpr std::size_t kMostPasses = 64;

  explicit UseOrder(std::size_t units);

  void used(Use const& use);
  /// The uses expected in the rest of this step.
  [[nodiscard]] std::span<Use const> upcoming() const noexcept {
    return std::span<Use const>(expected_).subspan(position_);
  }
  /// How many uses come before `unit`'s next one; kNever when none is expected.
  [[nodiscard]] std::size_t next_use(std::size_t unit) const noexcept;
  /// Ends the step: its uses, if there were any, are what the next step is expected to do.
  void end_step();

 private:
  std::size_t most_;  ///< uses that are remembered of a step
  std::vector<Use> expected_;
  std::size_t position_ = 0;  ///< in expected_
  std::vector<Use> seen_;     ///< in this step
};

}  // namespace weft
