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

/// Foretells which units are used next: as in the step before, at first forward in order and backward in reverse. Not
/// thread-safe.
class UseOrder {
 public:
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  explicit UseOrder(std::size_t units);

  void used(Use const& use);
  /// What is expected in the rest of this step.
  [[nodiscard]] std::span<Use const> upcoming() const noexcept {
    return std::span<Use const>(expected_).subspan(position_);
  }
  /// How many uses come before `unit`'s next one; kNever when none is expected.
  [[nodiscard]] std::size_t next_use(std::size_t unit) const noexcept;
  /// From now on what was used in this step is expected in the next, if anything was.
  void end_step();

 private:
  std::vector<Use> expected_;
  std::size_t position_ = 0;  ///< in expected_
  std::vector<Use> seen_;     ///< in this step
};

}  // namespace weft
