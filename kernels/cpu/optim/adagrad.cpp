#include "kernels/cpu/optim/update.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optim/adagrad.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/optim/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

class AdagradVectors : public OrdinaryRule {
 public:
  static constexpr std::size_t kStates = 1;

  explicit AdagradVectors(AdagradScalars const& s)
      : lr_(hn::Set(DF(), s.lr)), weight_decay_(hn::Set(DF(), s.weight_decay)), eps_(hn::Set(DF(), s.eps)) {}

  HWY_INLINE VF operator()(VF p, VF gradient, VF& sum, VF& /*unused*/, VF& /*unused*/) const {
    VF const g = hn::MulAdd(weight_decay_, p, gradient);
    sum = hn::MulAdd(g, g, sum);
    return hn::NegMulAdd(lr_, hn::Div(g, hn::Add(hn::Sqrt(sum), eps_)), p);
  }

 private:
  VF lr_, weight_decay_, eps_;
};

void adagrad_kernel(UpdateArrays const& arrays, std::size_t count, AdagradScalars const& scalars,
                    GradientUse const& use) {
  AdagradVectors const rule(scalars);
  update(rule, arrays, count, use);
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(adagrad_kernel);

void adagrad(UpdateArrays const& arrays, std::size_t count, AdagradScalars const& scalars, GradientUse const& use) {
  HWY_DYNAMIC_DISPATCH(adagrad_kernel)(arrays, count, scalars, use);
}

}  // namespace weft::kernels
#endif
