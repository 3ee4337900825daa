#include "sharding/gradient_judge.hpp"

#include <fmt/format.h>

#include <cmath>

#include "sharding/norm_of_all.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

float value_or(float const* pointer, float otherwise) noexcept {
  return pointer != nullptr ? *pointer : otherwise;
}

}  // namespace

GradientJudge::GradientJudge(GradientPolicy const& policy) : policy_(policy) {
  if (policy.max_norm) static_cast<void>(clip_factor(0, *policy.max_norm));
  if (!policy.max_value) return;
  clip_grad_value({}, *policy.max_value);  // throws for what is no limit
  if (policy.max_norm) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("clipping: both max_norm ({}) and max_value ({}) are set; choose one", *policy.max_norm,
                            *policy.max_value));
  }
}

void GradientJudge::check(StepInputs const& inputs) const {
  if (policy_.scaler != nullptr && updates_ == policy_.scaler->update_count()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("step: the scaler has had no update() since the last step{}; call it after each step",
                            found_inf_ != 0 ? ", whose overflow would skip this one too" : ""));
  }
  bool const both_scale = policy_.scaler != nullptr && (inputs.inv_scale != nullptr || inputs.found_inf != nullptr);
  bool const both_clip = policy_.max_norm && inputs.clip != nullptr;
  bool const both_limit = policy_.max_value && inputs.clip_value;
  if (!both_scale && !both_clip && !both_limit) return;
  throw Error(ErrorCode::invalid_argument,
              both_scale
                  ? "step: the policy's scaler unscales and finds overflows; pass neither inv_scale nor found_inf"
              : both_clip ? "step: the policy's max_norm clips; pass no clip"
                          : "step: the policy's max_value clips; pass no clip_value");
}

StepInputs GradientJudge::without_judging(StepInputs inputs) const noexcept {
  if (policy_.max_value) inputs.clip_value = policy_.max_value;
  return inputs;
}

NormParts GradientJudge::measure(BufferView shard, float inv_scale) const {
  // The squares of scaled gradients leave the range of f32 far earlier than those of the gradients themselves, and then
  // need a second pass.
  return parts_of(shard, policy_.norm_type, inv_scale);
}

void GradientJudge::add(NormParts const& shard) noexcept {
  weft::add(parts_, shard, policy_.norm_type);
}

void GradientJudge::note_decision() noexcept {
  if (policy_.scaler != nullptr) updates_ = policy_.scaler->update_count();
}

StepInputs GradientJudge::decide(Communicator& communicator, StepInputs const& inputs, CollectiveOptions const& how) {
  if (policy_.scaler != nullptr && policy_.scaler->found_inf() != 0) parts_.not_finite = 1;
  norm_ = norm_of(parts_of_all(communicator, parts_, policy_.norm_type, how), policy_.norm_type);
  begin();
  if (policy_.scaler == nullptr) norm_.norm *= std::abs(value_or(inputs.inv_scale, 1));
  found_inf_ = norm_.finite ? value_or(inputs.found_inf, 0) : 1;
  if (policy_.scaler != nullptr) policy_.scaler->found_inf() = found_inf_;
  note_decision();
  StepInputs decided = without_judging(inputs);
  decided.found_inf = &found_inf_;
  if (policy_.scaler != nullptr) decided.inv_scale = policy_.scaler->inputs().inv_scale;
  if (policy_.max_norm) {
    clip_ = norm_.finite ? clip_factor(norm_.norm, *policy_.max_norm) : 1;
    decided.clip = &clip_;
  }
  return decided;
}

}  // namespace weft
