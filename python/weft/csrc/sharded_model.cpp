#include "sharded_model.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include "device.hpp"
#include "gradient_calls.hpp"

namespace weft::torch_backend {
namespace {

at::ScalarType type_of(DataType type) {
  return type == DataType::f32 ? at::kFloat : type == DataType::bf16 ? at::kBFloat16 : at::kHalf;
}

at::Tensor floats_like(at::Tensor const& like) {
  return at::empty(like.sizes(), at::TensorOptions(at::kFloat)).as_strided(like.sizes(), like.strides());
}

std::vector<at::Tensor> layouts_of(std::vector<at::Tensor> const& tensors) {
  std::vector<at::Tensor> layouts;
  for (auto const& one : tensors) {
    layouts.push_back(at::empty_strided(one.sizes(), one.strides(), one.options().device(at::kMeta)));
  }
  return layouts;
}

Communicator duplicate_of(ProcessGroupWeft& group, MemoryAccount const& account) {
  MemoryAccount::Binding const bound(account);
  return group.duplicate();
}

at::Device place_of(BufferView const& memory) {
  if (memory.device.type == DeviceType::cpu) return at::kCPU;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(memory.device.index)};
}

}  // namespace

at::Tensor tensor_over(BufferView const& memory, at::Tensor const& like, std::shared_ptr<void> owner) {
  auto const device = place_of(memory);
  return at::for_blob(memory.data, like.sizes())
      .strides(like.strides())
      .deleter([owner = std::move(owner)](void*) {})
      .options(at::TensorOptions(type_of(memory.dtype)).device(device))
      .target_device(device)
      .make_tensor();
}

void move_tensor(at::Tensor const& tensor, BufferView const& memory, std::shared_ptr<void> owner) {
  using Owner = std::shared_ptr<void>;
  at::DataPtr moved(
      memory.data, new Owner(std::move(owner)), [](void* kept) { delete static_cast<Owner*>(kept); }, place_of(memory));
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(moved));
}

std::vector<BufferView> views_of(std::vector<at::Tensor> const& tensors) {
  std::vector<BufferView> views;
  for (auto const& tensor : tensors) views.push_back(dense_view(tensor, views.size(), "a parameter"));
  return views;
}

std::vector<at::Tensor> tensors_of(std::vector<TensorGroup> const& groups) {
  std::vector<at::Tensor> tensors;
  for (auto const& group : groups) tensors.insert(tensors.end(), group.parameters.begin(), group.parameters.end());
  return tensors;
}

void record_uses(std::vector<TensorGroup> const& groups) {
  for (auto const& tensor : tensors_of(groups)) record_use_here(tensor);
}

ShardedModel::ShardedModel(ProcessGroupWeft& group, std::vector<at::Tensor> const& parameters, MemoryAccount account)
    : account_(std::move(account)),
      compute_(parameters.at(0).device()),
      layouts_(layouts_of(parameters)),
      communicator_(as_torch([&] { return duplicate_of(group, account_); })) {}

void ShardedModel::set_options(std::size_t group, OptimizerOptions const& options) {
  as_torch([&] { sharded().set_options(group, options); });
}

double ShardedModel::norm() {
  auto const norm = sharded().gradient_norm();
  return norm.finite ? norm.norm : std::numeric_limits<double>::infinity();
}

std::size_t ShardedModel::which(std::size_t index, std::string const& name) {
  auto const names = sharded().state_names(index);
  auto const found = std::ranges::find(names, name);
  TORCH_CHECK_VALUE(found != names.end(), "weft: parameter ", index, " has no state ", name);
  return static_cast<std::size_t>(found - names.begin());
}

at::Tensor ShardedModel::state(std::size_t index, std::string const& name) {
  auto const values = as_torch([&] {
    return compute_.in_order(
        [&] { return name == "master" ? sharded().master(index) : sharded().state(index, which(index, name)); });
  });
  auto tensor = floats_like(layouts_[index]);
  std::ranges::copy(values, tensor.mutable_data_ptr<float>());
  return tensor;
}

at::Tensor ShardedModel::state_shard(std::size_t index, std::string const& name) {
  compute_.follow_current();
  auto const values = as_torch([&] {
    return name == "master" ? sharded().master_shard(index) : sharded().state_shard(index, which(index, name));
  });
  auto tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions(at::kFloat));
  std::ranges::copy(values, tensor.mutable_data_ptr<float>());
  return tensor;
}

void ShardedModel::set_state_shard(std::size_t index, std::string const& name, at::Tensor const& values) {
  auto const floats = values.to(at::TensorOptions(at::kFloat).device(at::kCPU)).contiguous();
  std::span<float const> const elements(floats.const_data_ptr<float>(), static_cast<std::size_t>(floats.numel()));
  as_torch([&] {
    compute_.in_order([&] {
      if (name == "master") return sharded().set_master_shard(index, elements);
      sharded().set_state_shard(index, which(index, name), elements);
    });
  });
}

void ShardedModel::share() {
  as_torch([&] { compute_.in_order([&] { sharded().share_parameters(); }); });
}

void ShardedModel::set_state(std::size_t index, std::string const& name, at::Tensor const& values) {
  TORCH_CHECK_VALUE(values.sizes() == layouts_[index].sizes(), "weft: ", name, " of parameter ", index, " has shape ",
                    values.sizes(), ", the parameter ", layouts_[index].sizes());
  auto const ordered = floats_like(layouts_[index]);
  ordered.copy_(values);
  std::span<float const> const elements(ordered.const_data_ptr<float>(), static_cast<std::size_t>(ordered.numel()));
  as_torch([&] {
    compute_.in_order([&] {
      if (name == "master") return sharded().set_parameter(index, elements);
      sharded().set_state(index, which(index, name), elements);
    });
  });
}

}  // namespace weft::torch_backend
