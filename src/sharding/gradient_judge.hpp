#pragma once

#include <cstdint>
#include <optional>

#include "optim/gradient_parts.hpp"
#include "weft/communicator.hpp"
#include "weft/gradient_policy.hpp"
#include "weft/optimizer.hpp"

namespace weft {

/// Looks at reduced shards while others are still under way, then decides with all ranks what the step multiplies them
/// by, or that it is skipped. Stays where it is while updates run.
class GradientJudge {
 public:
  /// @throws Error{invalid_argument} for a max_norm that is not above 0, a max_value below 0, and for both.
  explicit GradientJudge(GradientPolicy const& policy);

  /// Whether shards are to be looked at. If not, nothing but this, check() and without_judging() is called.
  [[nodiscard]] bool is_wanted() const noexcept { return policy_.scaler != nullptr || policy_.max_norm; }
  /// @throws Error{invalid_argument} where the policy decides what the caller passes as well, and where the scaler's
  /// update() did not follow the last decide().
  void check(StepInputs const& inputs) const;
  /// With what the policy asks for besides.
  [[nodiscard]] StepInputs without_judging(StepInputs inputs) const noexcept;

  /// Forgets what it has seen since decide().
  void begin() noexcept { parts_ = {}; }
  /// One pass over a shard, f32, bf16 or f16. One thread at a time.
  void look_at(BufferView shard) { add(measure(shard, inv_scale())); }
  /// The same in two: of a shard that may yet change, what it was like last is added. measure() is thread-safe; it is
  /// told the scale, which the caller's thread may update meanwhile.
  [[nodiscard]] NormParts measure(BufferView shard, float inv_scale) const;
  /// The scaler's, now; 1 without one.
  [[nodiscard]] float inv_scale() const { return policy_.scaler != nullptr ? policy_.scaler->inv_scale() : 1; }
  void add(NormParts const& shard) noexcept;

  /// Collective, by one all_reduce: by everything that was looked at, on all ranks. The result's pointers are good
  /// until the next call.
  [[nodiscard]] StepInputs decide(Communicator& communicator, StepInputs const& inputs, CollectiveOptions const& how);
  /// A DeviceJudge has decided instead: check() asks for the scaler's update() after that as well.
  void note_decision() noexcept;
  /// What decide() found, unscaled.
  [[nodiscard]] GradientNorm const& norm() const noexcept { return norm_; }

 private:
  GradientPolicy policy_;
  NormParts parts_;
  GradientNorm norm_;
  float clip_ = 1;
  float found_inf_ = 0;
  std::optional<std::uint64_t> updates_;  ///< of the scaler, at the last decide()
};

}  // namespace weft
