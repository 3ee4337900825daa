#include "kernels/cpu/optim/update.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optim/sgd.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/optim/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

template <bool kMomentum>
class SgdVectors : public OrdinaryRule {
 public:
  static constexpr std::size_t kStates = kMomentum ? 1 : 0;

  explicit SgdVectors(SgdScalars const& s)
      : lr_(hn::Set(DF(), s.lr)),
        momentum_(hn::Set(DF(), s.momentum)),
        one_minus_dampening_(hn::Set(DF(), s.one_minus_dampening)),
        weight_decay_(hn::Set(DF(), s.weight_decay)),
        nesterov_(s.nesterov) {}

  HWY_INLINE VF operator()(VF p, VF gradient, VF& buffer, VF& /*unused*/, VF& /*unused*/) const {
    VF g = hn::MulAdd(weight_decay_, p, gradient);
    if constexpr (kMomentum) {
      buffer = hn::MulAdd(momentum_, buffer, hn::Mul(one_minus_dampening_, g));
      g = nesterov_ ? hn::MulAdd(momentum_, buffer, g) : buffer;
    }
    return hn::NegMulAdd(lr_, g, p);
  }

 private:
  VF lr_, momentum_, one_minus_dampening_, weight_decay_;
  bool nesterov_;
};

void sgd_kernel(UpdateArrays const& arrays, std::size_t count, SgdScalars const& scalars, GradientUse const& use) {
  if (scalars.has_momentum) {
    SgdVectors<true> const rule(scalars);
    return update(rule, arrays, count, use);
  }
  SgdVectors<false> const rule(scalars);
  update(rule, arrays, count, use);
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(sgd_kernel);

void sgd(UpdateArrays const& arrays, std::size_t count, SgdScalars const& scalars, GradientUse const& use) {
  HWY_DYNAMIC_DISPATCH(sgd_kernel)(arrays, count, scalars, use);
}

}  // namespace weft::kernels
#endif
