#include "kernels/cpu/optim/update.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optim/lion.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/optim/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

class LionVectors : public OrdinaryRule {
 public:
  static constexpr std::size_t kStates = 1;

  explicit LionVectors(LionScalars const& s)
      : lr_(hn::Set(DF(), s.lr)),
        decay_(hn::Set(DF(), s.decay)),
        beta1_(hn::Set(DF(), s.beta1)),
        beta2_(hn::Set(DF(), s.beta2)),
        one_minus_beta1_(hn::Set(DF(), s.one_minus_beta1)),
        one_minus_beta2_(hn::Set(DF(), s.one_minus_beta2)) {}

  HWY_INLINE VF operator()(VF p, VF g, VF& m, VF& /*unused*/, VF& /*unused*/) const {
    VF const direction = hn::MulAdd(beta1_, m, hn::Mul(one_minus_beta1_, g));
    m = hn::MulAdd(beta2_, m, hn::Mul(one_minus_beta2_, g));
    VF const zero = hn::Zero(DF());
    VF const step = hn::CopySign(lr_, direction);
    // A direction of 0 makes no step, and NaN stays NaN.
    VF const signed_step = hn::IfThenElse(hn::Eq(direction, zero), zero, step);
    return hn::MulSub(p, decay_, hn::IfThenElse(is_nan_mask(direction), direction, signed_step));
  }

 private:
  VF lr_, decay_, beta1_, beta2_, one_minus_beta1_, one_minus_beta2_;
};

void lion_kernel(UpdateArrays const& arrays, std::size_t count, LionScalars const& scalars, GradientUse const& use) {
  LionVectors const rule(scalars);
  update(rule, arrays, count, use);
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(lion_kernel);

void lion(UpdateArrays const& arrays, std::size_t count, LionScalars const& scalars, GradientUse const& use) {
  HWY_DYNAMIC_DISPATCH(lion_kernel)(arrays, count, scalars, use);
}

}  // namespace weft::kernels
#endif
