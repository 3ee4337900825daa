#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/block.hpp"
#include "kernels/cuda/chunk.hpp"
#include "kernels/math/adagrad.hpp"
#include "kernels/math/adam.hpp"
#include "kernels/math/block_state.hpp"
#include "kernels/math/clip.hpp"
#include "kernels/math/lamb.hpp"
#include "kernels/math/lion.hpp"
#include "kernels/math/sgd.hpp"

namespace weft::kernels::cuda {

enum class RuleKind : std::uint8_t { adam, adam_amsgrad, sgd, sgd_momentum, lamb, lion, adagrad };
inline constexpr int kRuleKinds = 7;

/// weft::OptimizerOptions in the form for kernels. Each rule reads only the options it has.
struct RuleOptions {
  RuleKind kind = RuleKind::adam;
  Decay decay = Decay::decoupled;  ///< of adam
  bool maximize = false;
  bool nesterov = false;
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  double momentum = 0, dampening = 0;  ///< of sgd
  double lr_decay = 0;                 ///< of adagrad
};

/// What happens to gradients on the way to a rule.
struct GradientUse {
  float factor;  ///< multiplies the gradient
  float limit;   ///< then it is clamped to [−limit, limit]

  [[nodiscard]] WEFT_KERNEL float operator()(float gradient) const { return clip_value(gradient * factor, limit); }
};

/// What all elements of a parameter group need in a step.
struct GroupScalars {
  bool skip;  ///< the step has overflowed and is not applied
  GradientUse use;
  long long step;
  double lr;
  AdamScalars adam;
  SgdScalars sgd;
  LionScalars lion;
  AdagradScalars adagrad;
  LambScalars lamb;
};

/// The same as weft::StepInputs; each is in device memory, or null.
struct StepPointers {
  float const* lr = nullptr;
  std::int64_t const* step = nullptr;
  float const* inv_scale = nullptr;
  float const* clip = nullptr;
  float const* found_inf = nullptr;
};

WEFT_KERNEL inline void fill_rule(GroupScalars& s, RuleOptions const& o, long long step) {
  switch (o.kind) {
    case RuleKind::adam:
    case RuleKind::adam_amsgrad:
      s.adam = adam_scalars(s.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.decay, step);
      break;
    case RuleKind::sgd:
    case RuleKind::sgd_momentum:
      s.sgd = sgd_scalars(s.lr, o.momentum, o.dampening, o.weight_decay, o.nesterov, step);
      break;
    case RuleKind::lamb: s.lamb = lamb_scalars(o.beta1, o.beta2, o.eps, o.weight_decay, step); break;
    case RuleKind::lion: s.lion = lion_scalars(s.lr, o.beta1, o.beta2, o.weight_decay); break;
    case RuleKind::adagrad: s.adagrad = adagrad_scalars(s.lr, o.lr_decay, o.weight_decay, o.eps, step); break;
  }
}

/// Counts a step, unless it has overflowed, and computes its groups' scalars; one block. If there are more groups than
/// fit into one launch, only the last launch counts the step.
struct BeginStepBody {
  static constexpr unsigned kThreads = 32;
  using Shared = Nothing;

  RuleOptions options[kThreads];
  unsigned groups = 0;
  bool counts = true;
  StepPointers inputs;
  float limit = INFINITY;           ///< of gradients
  std::int64_t* step = nullptr;     ///< number of steps applied
  GroupScalars* scalars = nullptr;  ///< scalars[t] belongs to the group of options[t]

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    bool const skip = inputs.found_inf != nullptr && *inputs.found_inf != 0;
    std::int64_t const next = inputs.step != nullptr ? *inputs.step : *step + 1;
    std::int64_t const now = skip ? *step : next;
    block.each_thread([&](unsigned t) {
      if (t >= groups) return;
      RuleOptions const& own = options[t];
      GroupScalars& s = scalars[t];
      s.skip = skip;
      s.step = now;
      s.lr = inputs.lr != nullptr ? *inputs.lr : own.lr;
      s.use.factor = (own.maximize ? -1.0F : 1.0F) * (inputs.inv_scale != nullptr ? *inputs.inv_scale : 1.0F) *
                     (inputs.clip != nullptr ? *inputs.clip : 1.0F);
      s.use.limit = limit;
      fill_rule(s, own, now);
    });
    block.each_thread([&](unsigned t) {
      if (t == 0 && counts) *step = now;
    });
  }
};

/// Writes the table of gradients. The pointers travel as kernel arguments, so no copy is needed, and no host memory
/// that has to outlive the call.
struct SetGradientsBody {
  static constexpr unsigned kThreads = 256;
  using Shared = Nothing;
  static constexpr unsigned kMost = 240;  ///< arguments stay below 4 KiB

  TensorPointer gradients[kMost];
  unsigned count = 0;
  TensorPointer* to = nullptr;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    block.each_thread([&](unsigned t) {
      if (t < count) to[t] = gradients[t];
    });
  }
};

}  // namespace weft::kernels::cuda
