#include "tensor_optimizer.hpp"

#include <algorithm>
#include <map>

#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include "gradient_calls.hpp"
#include "parallel.hpp"

namespace weft::torch_backend {
namespace {

constexpr char const* kCall = "step";

ParameterMemory memory_of(OptimizedTensor const& tensor, std::size_t part) {
  ParameterMemory memory;
  if (tensor.master) memory.master = part_of(gradient_view(*tensor.master, 0, "a float32 original"), part);
  for (auto const& state : tensor.states) memory.states.push_back(part_of(gradient_view(state, 0, "a state"), part));
  return memory;
}

}  // namespace

TensorOptimizer::TensorOptimizer(std::vector<Group> const& groups, bool master_weights, bool zero_gradients)
    : zero_gradients_(zero_gradients) {
  std::vector<ParameterGroup> parts;
  std::vector<ParameterMemory> memory;
  for (auto const& group : groups) {
    auto& list = parts.emplace_back(ParameterGroup{{}, group.options}).parameters;
    for (auto const& tensor : group.tensors) {
      first_parts_.push_back(memory.size());
      auto const whole = gradient_view(tensor.parameter, tensors_.size(), "a parameter");
      for (std::size_t part = 0; part < part_count(whole.count); ++part) {
        list.push_back(part_of(whole, part));
        memory.push_back(memory_of(tensor, part));
      }
      tensors_.push_back(tensor);
      needs_norms_.push_back(std::holds_alternative<LambOptions>(group.options));
    }
  }
  first_parts_.push_back(memory.size());
  optimizer_.emplace(parts, memory,
                     OptimizerSettings{.master_weights = master_weights, .zero_gradients = zero_gradients});
}

at::Tensor in_order(at::Tensor const& gradient, at::Tensor const& parameter, std::size_t index) {
  TORCH_CHECK_VALUE(gradient.layout() == at::kStrided, "weft: step: gradient ", index, " is not dense (layout ",
                    gradient.layout(), "); make it with sparse=False, or take one of torch.optim's for its parameter");
  TORCH_CHECK_VALUE(gradient.sizes() == parameter.sizes(), "weft: step: gradient ", index, " has shape ",
                    gradient.sizes(), ", its parameter ", parameter.sizes());
  auto const alike = gradient.strides() == parameter.strides() ||
                     (gradient.is_contiguous() && parameter.is_contiguous());  // strides of dimensions of size 1
  if (alike && !gradient.is_neg()) return gradient;
  return at::empty_like(parameter, parameter.options().dtype(gradient.scalar_type())).copy_(gradient);
}

void TensorOptimizer::step(std::vector<std::size_t> const& indices, std::vector<at::Tensor> const& gradients,
                           at::Tensor const& steps, float inv_scale, float clip) {
  auto* const counts = steps.mutable_data_ptr<float>();
  std::vector<at::Tensor> ordered;                        // kept until all is done
  std::map<std::int64_t, std::vector<Update>> by_number;  // one entry, unless some had no gradient in some steps
  std::map<std::int64_t, std::size_t> elements;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    auto const index = indices[i];
    ordered.push_back(in_order(gradients[i], tensors_[index].parameter, index));
    auto const whole = gradient_view(ordered.back(), index, kCall);
    auto const number = static_cast<std::int64_t>(counts[index]) + 1;
    auto& updates = by_number[number];
    elements[number] += whole.count;
    for (std::size_t part = 0; part < part_count(whole.count); ++part) {
      updates.push_back({first_parts_[index] + part, part_of(whole, part), number, index});
    }
  }
  for (auto const& [number, updates] : by_number) {
    run(updates, elements[number], {.step = &number, .inv_scale = &inv_scale, .clip = &clip});
  }
  for (std::size_t i = 0; i < indices.size(); ++i) {
    counts[indices[i]] += 1;
    if (zero_gradients_ && !ordered[i].is_same(gradients[i])) gradients[i].zero_();
  }
}

void TensorOptimizer::run(std::vector<Update> const& updates, std::size_t elements, StepInputs const& inputs) {
  optimizer_->begin_step(inputs);
  bool const norms = std::ranges::any_of(updates, [&](Update const& one) { return needs_norms_[one.tensor]; });
  if (norms) return run_with_norms(updates, elements);
  for_each_part(updates.size(), elements,
                [&](std::size_t i) { optimizer_->update(updates[i].part, updates[i].gradient); });
}

void TensorOptimizer::run_with_norms(std::vector<Update> const& updates, std::size_t elements) {
  std::vector<Optimizer::Norms> parts(updates.size());
  for_each_part(updates.size(), elements,
                [&](std::size_t i) { parts[i] = optimizer_->update_moments(updates[i].part, updates[i].gradient); });
  std::vector<Optimizer::Norms> whole(tensors_.size());
  for (std::size_t i = 0; i < updates.size(); ++i) {  // always in this order, whichever thread measured them
    whole[updates[i].tensor].parameter += parts[i].parameter;
    whole[updates[i].tensor].direction += parts[i].direction;
  }
  for_each_part(updates.size(), elements, [&](std::size_t i) {
    if (needs_norms_[updates[i].tensor]) optimizer_->apply(updates[i].part, whole[updates[i].tensor]);
  });
}

}  // namespace weft::torch_backend
