#pragma once

#include <cstdint>
#include <optional>

#include "optim/gradient_parts.hpp"
#include "weft/communicator.hpp"
#include "weft/gradient_policy.hpp"
#include "weft/optimizer.hpp"

namespace weft {

/// Measures reduced shards while others are still under way, then decides with all ranks what the step multiplies
/// gradients by, or that it is skipped. Must not be moved while updates run: they read its members.
class GradientJudge {
 public:
  /// @throws Error{invalid_argument} for a max_norm that is not above 0, a max_value below 0, and for both.
  explicit GradientJudge(GradientPolicy const& policy);

  /// Whether shards have to be looked at. If not, nothing but this, check() and without_judging() is called.
  [[nodiscard]] bool is_wanted() const noexcept { return policy_.scaler != nullptr || policy_.max_norm; }
  /// @throws Error{invalid_argument} where the caller passes what the policy decides, and where the scaler's update()
  /// did not follow the last decide().
  void check(StepInputs const& inputs) const;
  /// `inputs`, with the policy's max_value added.
  [[nodiscard]] StepInputs without_judging(StepInputs inputs) const noexcept;

  /// Forgets what it has looked at since decide().
  void begin() noexcept { parts_ = {}; }
  /// One pass over a shard of f32, bf16 or f16. By one thread at a time.
  void look_at(BufferView shard) { add(measure(shard, inv_scale())); }
  /// look_at() in two steps, for a shard that may still change: only its last measurement is add()ed. measure() is
  /// thread-safe; it takes the scale as an argument because the caller's thread may update it meanwhile.
  [[nodiscard]] NormParts measure(BufferView shard, float inv_scale) const;
  /// The scaler's inverse scale now, on the host; 1 without a scaler. Reads nothing else of the scaler, whose
  /// found_inf() may be set meanwhile.
  [[nodiscard]] float inv_scale() const { return policy_.scaler != nullptr ? *policy_.scaler->inputs().inv_scale : 1; }
  void add(NormParts const& shard) noexcept;

  /// Collective, by one all_reduce: decides from everything that all ranks have looked at. The result's pointers are
  /// valid until the next call.
  [[nodiscard]] StepInputs decide(Communicator& communicator, StepInputs const& inputs, CollectiveOptions const& how);
  /// Notes that a DeviceJudge has decided instead: check() then asks for the scaler's update() as after decide().
  void note_decision() noexcept;
  /// The norm that decide() found, of unscaled gradients.
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
