#pragma once

#include <cstdint>
#include <memory>

#include "weft/buffer.hpp"
#include "weft/optimizer.hpp"
#include "weft/stream.hpp"

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
/// Gradients are judged after they are reduced, so that all ranks skip alike. Not thread-safe.
///
/// On a GPU all of it is in the GPU's memory, and a step never waits (weft/cuda.hpp has GradientList):
///   gradients.measure({.inv_scale = scaler.inputs().inv_scale, .max_norm = 1, .found_inf = scaler.found_inf_view()},
///   stream); optimizer.step(views, {…scaler.inputs(), .clip = gradients.clip(), .stream = &stream});
///   scaler.update(&stream);
/// scale(), inv_scale(), state() and set_state() wait for the GPU there.
class GradScaler {
 public:
  /// @throws Error{invalid_argument} naming the option, its value and what is allowed; Error{unsupported} for a GPU in
  /// a library without CUDA.
  explicit GradScaler(GradScalerOptions const& options = {}, Device device = {});
  ~GradScaler();
  GradScaler(GradScaler&&) noexcept;  ///< pointers that were given out stay valid
  GradScaler& operator=(GradScaler&&) noexcept;

  [[nodiscard]] float scale() const;
  [[nodiscard]] float inv_scale() const;
  /// Not 0: this step has overflowed. @throws Error{unsupported} on a GPU.
  [[nodiscard]] float& found_inf();
  /// The same, wherever it is; and what multiplies the loss.
  [[nodiscard]] BufferView found_inf_view() noexcept;
  [[nodiscard]] ConstBufferView scale_view() const noexcept;
  /// For Optimizer::step(), of gradients that are still scaled.
  [[nodiscard]] StepInputs inputs() const noexcept;

  /// Ends a step: the scale falls after an overflow, and grows after growth_interval steps without one. found_inf is 0
  /// again. `stream`: where a GPU does so; null: its legacy default stream.
  void update(Stream const* stream = nullptr);
  /// Ends a step too, from which on the scale is `scale`, overflow or none; steps go on being counted from where they
  /// were. Waits for a GPU. @throws Error{invalid_argument} as set_state(); the step has not ended then.
  void update_to(double scale);
  /// Calls of both, by which a GradientPolicy notices one that was forgotten.
  [[nodiscard]] std::uint64_t update_count() const noexcept { return updates_; }

  /// From the next update() on; the scale stays. Options are those of construction, but for init_scale, and `enabled`,
  /// which cannot change. @throws as construction.
  void set_options(GradScalerOptions const& options);

  /// For checkpoints.
  struct State {
    float scale = 65536;
    std::int64_t growth_tracker = 0;   ///< steps without overflow since the scale last changed
    std::int64_t hysteresis_left = 1;  ///< overflows until it falls; 0: it falls at each

    friend bool operator==(State const&, State const&) = default;
  };
  [[nodiscard]] State state() const;
  /// @throws Error{invalid_argument} for a scale that is not finite and above 0.
  void set_state(State const& state);

  class Impl;  ///< the seam implemented per device

 private:
  GradScalerOptions options_;
  std::uint64_t updates_ = 0;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
