#if WEFT_TORCH_CUDA_TRAINING
#include "gpu_optimizer.hpp"

#include <utility>

#include <c10/util/Exception.h>

#include "device.hpp"
#include "gpu_gradients.hpp"
#include "gradient_calls.hpp"

namespace weft::torch_backend {
namespace {

constexpr char const* kGpuStep = "step";

float const* number(std::optional<at::Tensor> const& one, c10::Device device, char const* name) {
  return one ? number_on_gpu(*one, device, kGpuStep, name) : nullptr;
}

ParameterMemory memory_on_gpu_of(OptimizedTensor const& tensor) {
  ParameterMemory memory;
  if (tensor.master) memory.master = dense_view(*tensor.master, 0, "a float32 original");
  for (auto const& state : tensor.states) memory.states.push_back(dense_view(state, 0, "a state"));
  return memory;
}

}  // namespace

GpuOptimizer::GpuOptimizer(OptimizerOptions const& options, std::vector<OptimizedTensor> tensors, std::int64_t steps,
                           bool master_weights, bool zero_gradients)
    : tensors_(std::move(tensors)), zero_gradients_(zero_gradients) {
  ParameterGroup group{{}, options};
  std::vector<ParameterMemory> memory;
  for (auto const& tensor : tensors_) {
    group.parameters.push_back(dense_view(tensor.parameter, group.parameters.size(), "a parameter"));
    memory.push_back(memory_on_gpu_of(tensor));
  }
  optimizer_.emplace(std::vector{group}, memory,
                     OptimizerSettings{.master_weights = master_weights, .zero_gradients = zero_gradients});
  if (steps != 0) optimizer_->set_step_count(steps);
}

void GpuOptimizer::step(std::vector<at::Tensor> const& gradients, Inputs const& inputs) {
  TORCH_CHECK_VALUE(gradients.size() == tensors_.size(), "weft: ", kGpuStep, ": ", gradients.size(), " gradients for ",
                    tensors_.size(), " parameters");
  auto const device = tensors_.front().parameter.device();
  std::vector<at::Tensor> copies;
  std::vector<BufferView> views;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    auto const ordered = in_order(gradients[i], tensors_[i].parameter, i);
    if (!ordered.is_same(gradients[i])) copies.push_back(ordered);
    views.push_back(dense_view(ordered, i, kGpuStep));
  }
  stream_ = current_stream(device);
  optimizer_->step(views, {.lr = number(inputs.lr, device, "lr"),
                           .inv_scale = number(inputs.inv_scale, device, "inv_scale"),
                           .clip = number(inputs.clip, device, "clip"),
                           .found_inf = number(inputs.found_inf, device, "found_inf"),
                           .stream = &*stream_});
  if (!zero_gradients_ || copies.empty()) return;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (views[i].data != gradients[i].data_ptr()) gradients[i].zero_();
  }
}

}  // namespace weft::torch_backend
#endif
