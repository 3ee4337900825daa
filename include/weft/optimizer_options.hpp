#pragma once

#include <variant>

namespace weft {

// Names, defaults and formulas of torch.optim where it has the optimizer. p is the parameter, g its gradient, t the
// step, from 1. `maximize` negates g.

/// Adam (Kingma, Ba: Adam: A Method for Stochastic Optimization, 2015):
///   g ← g + weight_decay·p;  m ← m + (1 − β1)(g − m);  v ← β2·v + (1 − β2)·g²;
///   p ← p − lr/(1 − β1^t) · m / (√v/√(1 − β2^t) + eps).  amsgrad takes the largest v so far in its last line (Reddi,
/// Kale, Kumar: On the Convergence of Adam and Beyond, 2018).
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
};

/// Adam with p ← p·(1 − lr·weight_decay) instead of the first line (Loshchilov, Hutter: Decoupled Weight Decay
/// Regularization, 2019).
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};

/// g ← g + weight_decay·p;  with momentum b ← momentum·b + (1 − dampening)·g (b ← g at the first step), and
///   g ← g + momentum·b if nesterov, else b;  p ← p − lr·g.
struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

/// Adam's m and v of the plain g;  u = m/(1 − β1^t) / (√v/√(1 − β2^t) + eps) + weight_decay·p;
///   p ← p − lr·‖p‖/‖u‖·u per tensor, lr·u where a norm is 0 (You et al.: Large Batch Optimization for Deep Learning,
/// 2020, with bias correction).
struct LambOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
};

/// p ← p·(1 − lr·weight_decay) − lr·sign(β1·m + (1 − β1)·g);  m ← β2·m + (1 − β2)·g (Chen et al.: Symbolic Discovery of
/// Optimization Algorithms, 2023).
struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  bool maximize = false;
};

/// g ← g + weight_decay·p;  s ← s + g²;  p ← p − lr/(1 + (t − 1)·lr_decay) · g/(√s + eps) (Duchi, Hazan, Singer:
/// Adaptive Subgradient Methods, 2011).
struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
};

using OptimizerOptions = std::variant<AdamWOptions, AdamOptions, SgdOptions, LambOptions, LionOptions, AdagradOptions>;

/// "AdamW", "Lamb" …
[[nodiscard]] char const* name_of(OptimizerOptions const& options) noexcept;
[[nodiscard]] double lr_of(OptimizerOptions const& options) noexcept;
/// @throws as check().
void set_lr(OptimizerOptions& options, double lr);
/// @throws Error{invalid_argument} naming optimizer, option, value and what is allowed.
void check(OptimizerOptions const& options);

}  // namespace weft
