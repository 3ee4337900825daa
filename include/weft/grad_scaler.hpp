#pragma once

#include <cstdint>

#include "weft/optimizer.hpp"

namespace weft {

/// Names and defaults of torch.amp.GradScaler, and Megatron-LM's hysteresis.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int growth_interval = 2000;  ///< applied steps in a row before the scale grows
  int hysteresis = 1;          ///< the scale falls at so many overflows since it last grew, and each one after
  bool enabled = true;         ///< false: the scale is 1 and stays so
};

/// Scales the loss so that small f16 gradients do not vanish, and finds the largest scale that does not overflow.
/// Sync-free: what a step needs lies in memory that updates read when they run.
///
///   …backward of loss · scaler.scale(), reduce…
///   auto norm = gradient_norm(gradients, NormType::l2, scaler.inv_scale());
///   if (!norm.finite) scaler.found_inf() = 1;
///   optimizer.step(gradients, scaler.inputs());   // unscales; skips itself where found_inf is not 0
///   scaler.update();
///
/// After unscale_and_check(), which unscales in memory, step with {.found_inf = &scaler.found_inf()} instead.
/// Gradients are judged after they are reduced, so that all ranks skip alike. Not thread-safe; stays where it is while
/// updates that use its inputs() run.
class GradScaler {
 public:
  /// @throws Error{invalid_argument} naming the option, its value and what is allowed.
  explicit GradScaler(GradScalerOptions const& options = {});

  [[nodiscard]] float scale() const noexcept { return scale_; }
  [[nodiscard]] float inv_scale() const noexcept { return inv_scale_; }
  /// Not 0: this step has overflowed.
  [[nodiscard]] float& found_inf() noexcept { return found_inf_; }
  /// For Optimizer::step(), of gradients that are still scaled.
  [[nodiscard]] StepInputs inputs() const noexcept { return {.inv_scale = &inv_scale_, .found_inf = &found_inf_}; }

  /// Ends a step: the scale falls after an overflow, and grows after growth_interval steps without one. found_inf is 0
  /// again.
  void update() noexcept;

  /// For checkpoints.
  struct State {
    float scale = 65536;
    std::int64_t growth_tracker = 0;   ///< steps without overflow since the scale last changed
    std::int64_t hysteresis_left = 1;  ///< overflows until it falls; 0: it falls at each

    friend bool operator==(State const&, State const&) = default;
  };
  [[nodiscard]] State state() const noexcept { return {scale_, growth_tracker_, hysteresis_left_}; }
  /// @throws Error{invalid_argument} for a scale that is not finite and above 0.
  void set_state(State const& state);

 private:
  void set_scale(double scale) noexcept;

  GradScalerOptions options_;
  float scale_ = 1;
  float inv_scale_ = 1;
  float found_inf_ = 0;
  std::int64_t growth_tracker_ = 0;
  std::int64_t hysteresis_left_;
};

}  // namespace weft
