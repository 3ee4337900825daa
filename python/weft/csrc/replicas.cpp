#include "replicas.hpp"

#include <algorithm>
#include <utility>

namespace weft::torch_backend {
namespace {

/// Options of buckets that move if `rebuild` is set, or if settings are tried; torch's tensors over them then follow().
BucketerOptions bucket_options(std::size_t first_bytes, std::size_t bytes, bool find_unused, bool rebuild,
                               std::optional<Stream> const& compute) {
  BucketerOptions options;
  options.compute = compute;
  options.limits.first_bytes = first_bytes;
  options.limits.bytes = bytes;
  options.rebuild = rebuild;
  options.unused = find_unused ? UnusedGradients::find : UnusedGradients::zero;
  return options;
}

ZeroOptimizer sharded(Communicator& communicator, std::vector<TensorGroup> const& groups,
                      ShardedReplicas::Settings const& settings, std::optional<Stream> const& compute) {
  std::vector<ParameterGroup> parameters;
  for (auto const& group : groups) parameters.push_back({views_of(group.parameters), group.options});
  ZeroOptions options;
  options.stage = settings.stage == 1 ? ZeroStage::optimizer_states : ZeroStage::gradients;
  options.buckets = bucket_options(settings.first_bytes, settings.bytes, settings.find_unused, false, compute);
  options.optimizer.master_weights = settings.master_weights;
  options.buckets.come_and_go = settings.stage == 2;
  options.optimizer.zero_gradients = !options.buckets.come_and_go;  // where the next backward adds to them
  options.gradients.scaler = settings.scaler;
  if (settings.max_norm > 0) options.gradients.max_norm = settings.max_norm;
  return {communicator, parameters, options};
}

std::size_t bytes_of(std::vector<at::Tensor> const& tensors) {
  std::size_t bytes = 0;
  for (auto const& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace

Replicas::Replicas(ProcessGroupWeft& group, std::vector<at::Tensor> parameters, Settings const& settings,
                   MemoryAccount const& account)
    : parameters_(std::move(parameters)), compute_(parameters_.at(0).device()) {
  MemoryAccount::Binding const bound(account);
  parameter_bytes_ = MemoryCharge(MemoryKind::parameters, bytes_of(parameters_));
  communicator_ = group.duplicate();
  model_.emplace(
      *communicator_, views_of(parameters_),
      bucket_options(settings.first_bytes, settings.bytes, settings.find_unused, settings.rebuild, compute_.weft()));
}

void Replicas::follow(std::vector<at::Tensor> const& gradients) {
  for (std::size_t i = 0; i < gradients.size(); ++i) move_tensor(gradients[i], model_->gradient(i), shared_from_this());
}

at::Tensor Replicas::gradient(std::size_t index) {
  return tensor_over(model_->gradient(index), parameters_[index], shared_from_this());
}

void Replicas::mark_ready(std::size_t index) {
  compute_.follow_current();
  as_torch([&] { model_->mark_ready(index); });
}

void Replicas::finish() {
  as_torch([&] { compute_.in_order([&] { model_->finish(); }); });
}

void Replicas::finish_launching() {
  as_torch([&] { model_->finish_launching(); });
}

void Replicas::wait(std::size_t index) {
  as_torch([&] { model_->wait(index); });
}

std::vector<std::vector<std::size_t>> Replicas::plan() const {
  std::vector<std::vector<std::size_t>> tensors;
  for (auto const& bucket : model_->bucketer().plan().buckets) {
    auto& mine = tensors.emplace_back();
    for (auto const& slot : bucket.slots) mine.push_back(slot.tensor);
  }
  return tensors;
}

void Replicas::set_sync(bool sync) {
  as_torch([&] { model_->bucketer().set_sync(sync); });
}

std::size_t Replicas::bytes() const {
  std::size_t bytes = 0;
  for (auto const& bucket : model_->bucketer().plan().buckets) bytes += bucket.bytes();
  return bytes;
}

ShardedReplicas::ShardedReplicas(ProcessGroupWeft& group, std::vector<TensorGroup> const& groups,
                                 Settings const& settings, MemoryAccount const& account)
    : ShardedModel(group, tensors_of(groups), account),
      zero_(charged([&] { return torch_backend::sharded(communicator(), groups, settings, compute().weft()); })) {
  record_uses(groups);
}

at::Tensor ShardedReplicas::parameter(std::size_t index) {
  return tensor_over(zero_.parameter(index), layouts()[index], shared_from_this());
}

at::Tensor ShardedReplicas::gradient(std::size_t index) {
  return tensor_over(zero_.gradient(index), layouts()[index], shared_from_this());
}

void ShardedReplicas::take_gradient(std::size_t index, at::Tensor const& gradient, bool add) {
  auto const memory = charged([&] { return compute().in_order([&] { return zero_.gradient(index); }); });
  auto const to = tensor_over(memory, layouts()[index], nullptr);
  if (add) {
    to.add_(gradient);
  } else {
    to.copy_(gradient);
  }
  compute().follow_current();
}

void ShardedReplicas::follow(std::vector<at::Tensor> const& parameters, std::vector<at::Tensor> const& gradients) {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    move_tensor(parameters[i], zero_.parameter(i), shared_from_this());
  for (std::size_t i = 0; i < gradients.size(); ++i) move_tensor(gradients[i], zero_.gradient(i), shared_from_this());
}

void ShardedReplicas::mark_ready(std::size_t index) {
  compute().follow_current();
  charged([&] { zero_.mark_ready(index); });
}

void ShardedReplicas::accumulate(std::vector<std::size_t> const& ready) {
  compute().follow_current();
  charged([&] {
    zero_.no_sync([&] {
      for (auto const index : ready) zero_.mark_ready(index);
      zero_.step();
    });
  });
}

void ShardedReplicas::step() {
  charged([&] { compute().in_order([&] { zero_.step(); }); });
}

void ShardedReplicas::wait_parameter(std::size_t index) {
  as_torch([&] { compute().in_order([&] { zero_.wait_parameter(index); }); });
}

void ShardedReplicas::wait_parameters() {
  as_torch([&] { compute().in_order([&] { zero_.wait_parameters(); }); });
}

}  // namespace weft::torch_backend
