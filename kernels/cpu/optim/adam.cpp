#include "kernels/cpu/optim/update.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optim/adam.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/optim/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

/// AdamRule on a vector: the same operations in the same order.
template <bool kAmsgrad>
class AdamVectors : public OrdinaryRule {
 public:
  static constexpr std::size_t kStates = kAmsgrad ? 3 : 2;

  explicit AdamVectors(AdamScalars const& s)
      : decay_(hn::Set(DF(), s.decay)),
        l2_(hn::Set(DF(), s.l2)),
        beta2_(hn::Set(DF(), s.beta2)),
        one_minus_beta1_(hn::Set(DF(), s.one_minus_beta1)),
        one_minus_beta2_(hn::Set(DF(), s.one_minus_beta2)),
        step_size_(hn::Set(DF(), s.step_size)),
        inv_sqrt_bias2_(hn::Set(DF(), s.inv_sqrt_bias2)),
        eps_(hn::Set(DF(), s.eps)) {}

  HWY_INLINE VF operator()(VF p, VF gradient, VF& m, VF& v, VF& largest) const {
    VF const g = hn::MulAdd(l2_, p, gradient);
    m = hn::MulAdd(one_minus_beta1_, hn::Sub(g, m), m);
    v = hn::MulAdd(beta2_, v, hn::Mul(hn::Mul(one_minus_beta2_, g), g));
    if constexpr (kAmsgrad) largest = hn::Max(largest, v);
    VF const denominator = hn::MulAdd(hn::Sqrt(kAmsgrad ? largest : v), inv_sqrt_bias2_, eps_);
    return hn::NegMulAdd(step_size_, hn::Div(m, denominator), hn::Mul(p, decay_));
  }

 private:
  VF decay_, l2_, beta2_, one_minus_beta1_, one_minus_beta2_, step_size_, inv_sqrt_bias2_, eps_;
};

/// Swaps the arrays' contents; the compiler would drop stores of values that are already there.
struct TrafficRule : OrdinaryRule {
  static constexpr std::size_t kStates = 2;

  HWY_INLINE VF operator()(VF p, VF g, VF& m, VF& v, VF& /*unused*/) const {
    VF const updated = hn::Or(g, v);
    v = m;
    m = p;
    return updated;
  }
};

void adam_kernel(UpdateArrays const& arrays, std::size_t count, AdamScalars const& scalars, bool amsgrad,
                 GradientUse const& use) {
  if (amsgrad) {
    AdamVectors<true> const rule(scalars);
    return update(rule, arrays, count, use);
  }
  AdamVectors<false> const rule(scalars);
  update(rule, arrays, count, use);
}

void traffic_kernel(UpdateArrays const& arrays, std::size_t count, GradientUse const& use) {
  TrafficRule const rule;
  update(rule, arrays, count, use);
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(adam_kernel);
HWY_EXPORT(traffic_kernel);

void adam(UpdateArrays const& arrays, std::size_t count, AdamScalars const& scalars, bool amsgrad,
          GradientUse const& use) {
  HWY_DYNAMIC_DISPATCH(adam_kernel)(arrays, count, scalars, amsgrad, use);
}

void adam_traffic(UpdateArrays const& arrays, std::size_t count, GradientUse const& use) {
  HWY_DYNAMIC_DISPATCH(traffic_kernel)(arrays, count, use);
}

}  // namespace weft::kernels
#endif
