#include "sharding/device_judge.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft {

void DeviceJudge::check(GradientPolicy const& policy, Device device) {
  if (policy.scaler == nullptr) return;
  Device const scaler = policy.scaler->found_inf_view().device;
  if (scaler == device) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("gradients.scaler is on {}, the parameters on {}; construct it with GradScaler(options, "
                          "device)",
                          to_string(scaler), to_string(device)));
}

DeviceJudge::DeviceJudge(GradientPolicy const& policy, [[maybe_unused]] std::vector<BufferView> const& shards,
                         [[maybe_unused]] Device device)
    : policy_(policy) {
#ifdef WEFT_CUDA_TRAINING
  norm_ = make_cuda_norm(shards, device);
#endif
}

void DeviceJudge::look_at(std::size_t first, std::size_t count, Stream const& stream) {
  norm_->look_at(first, count, policy_.scaler != nullptr ? policy_.scaler->inputs().inv_scale : nullptr, stream);
}

StepInputs DeviceJudge::decide(Communicator& communicator, StepInputs const& inputs, Stream const& stream) {
  GradScaler* const scaler = policy_.scaler;
  norm_->combine(policy_.norm_type, scaler != nullptr ? scaler->inputs().found_inf : nullptr, stream);
  BufferView const numbers = norm_->numbers();
  // Nobody waits for the Work: what follows is on the same stream.
  static_cast<void>(communicator.all_reduce(
      numbers, numbers, policy_.norm_type == NormType::l2 ? ReduceOp::sum : ReduceOp::max, {stream, {}}));
  norm_->judge({.type = policy_.norm_type,
                .max_norm = policy_.max_norm.value_or(0),
                .factor = scaler != nullptr ? nullptr : inputs.inv_scale,
                .found_inf = scaler != nullptr ? nullptr : inputs.found_inf,
                .also_found_inf = scaler != nullptr ? static_cast<float*>(scaler->found_inf_view().data) : nullptr},
               stream);
  StepInputs decided = inputs;
  decided.found_inf = norm_->found_inf();
  if (scaler != nullptr) decided.inv_scale = scaler->inputs().inv_scale;
  if (policy_.max_norm) decided.clip = norm_->clip();
  if (policy_.max_value) decided.clip_value = policy_.max_value;
  return decided;
}

}  // namespace weft
