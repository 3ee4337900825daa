#include "weft/adamw.hpp"

#include <fmt/format.h>

#include "kernels/cpu/adamw.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

void require_f32_on_cpu(ConstBufferView const& view, std::size_t index, char const* what) {
  if (view.dtype == DataType::f32 && view.device.type == DeviceType::cpu) return;
  throw Error(ErrorCode::unsupported, fmt::format("AdamW: {} {} is {} on {}; this optimizer updates f32 on cpu", what,
                                                  index, to_string(view.dtype), to_string(view.device)));
}

}  // namespace

AdamW::AdamW(std::vector<BufferView> parameters, AdamWOptions const& options)
    : parameters_(std::move(parameters)), options_(options) {
  exp_avg_.reserve(parameters_.size());
  exp_avg_sq_.reserve(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    require_f32_on_cpu(parameters_[i], i, "parameter");
    if (parameters_[i].data == nullptr && parameters_[i].count > 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("AdamW: parameter {} is null but has {} elements", i, parameters_[i].count));
    }
    exp_avg_.push_back(Buffer::host(parameters_[i].count, DataType::f32));
    exp_avg_sq_.push_back(Buffer::host(parameters_[i].count, DataType::f32));
  }
}

void AdamW::update(std::size_t index, ConstBufferView gradient) {
  if (index >= parameters_.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("AdamW::update: index {} of {} parameters", index, parameters_.size()));
  }
  if (step_ < 1) {
    throw Error(ErrorCode::invalid_argument, "AdamW::update: no step has begun; call begin_step() first");
  }
  BufferView const& parameter = parameters_[index];
  if (gradient.dtype != DataType::f32 || gradient.count != parameter.count || gradient.device != parameter.device) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("AdamW::update: gradient {} has {} {} on {}, its parameter {} f32 on {}", index,
                            gradient.count, to_string(gradient.dtype), to_string(gradient.device), parameter.count,
                            to_string(parameter.device)));
  }
  if (gradient.data == nullptr && gradient.count > 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("AdamW::update: gradient {} is null", index));
  }
  kernels::AdamWScalars const scalars =
      kernels::adamw_scalars(options_.lr, options_.beta1, options_.beta2, options_.eps, options_.weight_decay, step_);
  kernels::adamw(static_cast<float*>(parameter.data), static_cast<float const*>(gradient.data),
                 static_cast<float*>(exp_avg_[index].data()), static_cast<float*>(exp_avg_sq_[index].data()),
                 parameter.count, scalars);
}

void AdamW::step(std::span<BufferView const> gradients) {
  if (gradients.size() != parameters_.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("AdamW::step: {} gradients for {} parameters", gradients.size(), parameters_.size()));
  }
  begin_step();
  for (std::size_t i = 0; i < gradients.size(); ++i) update(i, gradients[i]);
}

}  // namespace weft
