#pragma once

#include <cstdint>

namespace weft {

/// How a learning rate falls once warm-up has brought it to its peak.
enum class LrDecay {
  constant,
  linear,               ///< to final_lr at the last step
  cosine,               ///< likewise, along half a cosine (Loshchilov, Hutter: SGDR, 2017)
  inverse_square_root,  ///< peak·√(warmup/step) (Vaswani et al.: Attention Is All You Need, 2017)
};

/// A learning rate as a pure function of the steps that were applied (Optimizer::step_count()): a skipped step does not
/// advance it, and a resumed run goes on where it was.
struct LrSchedule {
  double peak_lr = 1e-3;
  std::int64_t warmup_steps = 0;  ///< linear from peak_lr / warmup_steps at step 1 to peak_lr
  std::int64_t total_steps = 0;   ///< where linear and cosine end; from there on final_lr
  double final_lr = 0;
  LrDecay decay = LrDecay::constant;

  /// @throws Error{invalid_argument} naming the member, its value and what is allowed.
  void check() const;
  /// For the step after `applied` steps, so for step applied + 1.
  [[nodiscard]] double at(std::int64_t applied) const noexcept;
};

}  // namespace weft
