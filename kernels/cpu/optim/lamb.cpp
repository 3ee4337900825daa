#include "kernels/cpu/optim/update.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optim/lamb.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/optim/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

/// u = m̂ / (√v̂ + eps) + weight_decay·p
class LambDirection {
 public:
  explicit LambDirection(LambScalars const& s)
      : inv_bias1_(hn::Set(DF(), s.adam.step_size)),
        inv_sqrt_bias2_(hn::Set(DF(), s.adam.inv_sqrt_bias2)),
        eps_(hn::Set(DF(), s.adam.eps)),
        weight_decay_(hn::Set(DF(), s.weight_decay)) {}

  HWY_INLINE VF operator()(VF p, VF m, VF v) const {
    VF const denominator = hn::MulAdd(hn::Sqrt(v), inv_sqrt_bias2_, eps_);
    return hn::MulAdd(weight_decay_, p, hn::Div(hn::Mul(m, inv_bias1_), denominator));
  }

 private:
  VF inv_bias1_, inv_sqrt_bias2_, eps_, weight_decay_;
};

class MomentsRule : public OrdinaryRule {
 public:
  static constexpr std::size_t kStates = 2;
  static constexpr bool kWrites = false;

  explicit MomentsRule(LambScalars const& s)
      : direction_(s),
        beta2_(hn::Set(DF(), s.adam.beta2)),
        one_minus_beta1_(hn::Set(DF(), s.adam.one_minus_beta1)),
        one_minus_beta2_(hn::Set(DF(), s.adam.one_minus_beta2)),
        parameter_(hn::Zero(DF())),
        update_(hn::Zero(DF())),
        counted_(hn::VecFromMask(DF(), hn::FirstN(DF(), hn::MaxLanes(DF())))) {}

  HWY_INLINE VF operator()(VF p, VF g, VF& m, VF& v, VF& /*unused*/) {
    m = hn::MulAdd(one_minus_beta1_, hn::Sub(g, m), m);
    v = hn::MulAdd(beta2_, v, hn::Mul(hn::Mul(one_minus_beta2_, g), g));
    VF const u = hn::And(direction_(p, m, v), counted_);
    parameter_ = hn::MulAdd(p, p, parameter_);
    update_ = hn::MulAdd(u, u, update_);
    return p;
  }

  /// Counts only the first `count` lanes of the next vector: if eps is 0, the direction of padding is 0/0.
  void count_only(std::size_t count) { counted_ = hn::VecFromMask(DF(), hn::FirstN(DF(), count)); }
  /// Adds the sums so far to `norms`, and starts again from zero.
  void add_to(LambNorms& norms) {
    norms.parameter += hn::GetLane(hn::SumOfLanes(DF(), parameter_));
    norms.direction += hn::GetLane(hn::SumOfLanes(DF(), update_));
    parameter_ = update_ = hn::Zero(DF());
    count_only(hn::MaxLanes(DF()));
  }

 private:
  LambDirection direction_;
  VF beta2_, one_minus_beta1_, one_minus_beta2_, parameter_, update_;
  VF counted_;  ///< all bits set in the lanes that belong to the tensor
};

class ApplyRule : public OrdinaryRule {
 public:
  static constexpr std::size_t kStates = 2;
  static constexpr bool kReadsGradient = false;
  static constexpr bool kWritesStates = false;

  ApplyRule(LambScalars const& s, float lr_ratio) : direction_(s), lr_ratio_(hn::Set(DF(), lr_ratio)) {}

  HWY_INLINE VF operator()(VF p, VF /*unused*/, VF& m, VF& v, VF& /*unused*/) const {
    return hn::NegMulAdd(lr_ratio_, direction_(p, m, v), p);
  }

 private:
  LambDirection direction_;
  VF lr_ratio_;
};

/// At most this many elements are summed in f32 before the sum becomes double.
constexpr std::size_t kSummed = 4096;

UpdateArrays from(UpdateArrays const& arrays, std::size_t first) {
  auto const move = [first](void* data, DataType type) -> void* {
    return data == nullptr ? nullptr : static_cast<std::byte*>(data) + first * size_of(type);
  };
  UpdateArrays moved = arrays;
  moved.parameter = move(arrays.parameter, arrays.parameter_type);
  moved.master = static_cast<float*>(move(arrays.master, DataType::f32));
  moved.gradient = move(arrays.gradient, arrays.gradient_type);
  for (float*& state : moved.state) state = static_cast<float*>(move(state, DataType::f32));
  return moved;
}

LambNorms moments_kernel(UpdateArrays const& arrays, std::size_t count, LambScalars const& scalars,
                         GradientUse const& use) {
  LambNorms norms;
  MomentsRule rule(scalars);
  for (std::size_t first = 0; first < count; first += kSummed) {
    update(rule, from(arrays, first), std::min(kSummed, count - first), use);
    rule.add_to(norms);
  }
  return norms;
}

void apply_kernel(UpdateArrays const& arrays, std::size_t count, LambScalars const& scalars, float lr_ratio) {
  ApplyRule const rule(scalars, lr_ratio);
  update(rule, arrays, count, {});
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(moments_kernel);
HWY_EXPORT(apply_kernel);

LambNorms lamb_moments(UpdateArrays const& arrays, std::size_t count, LambScalars const& scalars,
                       GradientUse const& use) {
  return HWY_DYNAMIC_DISPATCH(moments_kernel)(arrays, count, scalars, use);
}

void lamb_apply(UpdateArrays const& arrays, std::size_t count, LambScalars const& scalars, float lr_ratio) {
  HWY_DYNAMIC_DISPATCH(apply_kernel)(arrays, count, scalars, lr_ratio);
}

}  // namespace weft::kernels
#endif
