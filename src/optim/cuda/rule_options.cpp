#include "optim/cuda/rule_options.hpp"

namespace weft::cuda {
namespace {

using kernels::cuda::RuleKind;
using kernels::cuda::RuleOptions;

template <typename Options>
RuleOptions with_moments(Options const& o, RuleKind kind) {
  RuleOptions rule;
  rule.kind = kind;
  rule.maximize = o.maximize;
  rule.lr = o.lr;
  rule.beta1 = o.beta1;
  rule.beta2 = o.beta2;
  rule.weight_decay = o.weight_decay;
  if constexpr (!std::is_same_v<Options, LionOptions>) rule.eps = o.eps;
  return rule;
}

template <typename Options>
RuleOptions adam(Options const& o, kernels::Decay decay) {
  auto rule = with_moments(o, o.amsgrad ? RuleKind::adam_amsgrad : RuleKind::adam);
  rule.decay = decay;
  return rule;
}

RuleOptions convert(AdamWOptions const& o) {
  return adam(o, kernels::Decay::decoupled);
}
RuleOptions convert(AdamOptions const& o) {
  return adam(o, kernels::Decay::l2);
}
RuleOptions convert(LambOptions const& o) {
  return with_moments(o, RuleKind::lamb);
}
RuleOptions convert(LionOptions const& o) {
  return with_moments(o, RuleKind::lion);
}
RuleOptions convert(SgdOptions const& o) {
  RuleOptions rule;
  rule.kind = o.momentum != 0 ? RuleKind::sgd_momentum : RuleKind::sgd;
  rule.maximize = o.maximize;
  rule.nesterov = o.nesterov;
  rule.lr = o.lr;
  rule.weight_decay = o.weight_decay;
  rule.momentum = o.momentum;
  rule.dampening = o.dampening;
  return rule;
}
RuleOptions convert(AdagradOptions const& o) {
  RuleOptions rule;
  rule.kind = RuleKind::adagrad;
  rule.maximize = o.maximize;
  rule.lr = o.lr;
  rule.eps = o.eps;
  rule.weight_decay = o.weight_decay;
  rule.lr_decay = o.lr_decay;
  return rule;
}

}  // namespace

RuleOptions rule_options(OptimizerOptions const& options) {
  return std::visit([](auto const& one) { return convert(one); }, options);
}

}  // namespace weft::cuda
