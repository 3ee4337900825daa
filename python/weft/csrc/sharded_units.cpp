#include "sharded_units.hpp"

#include <utility>

#include <ATen/EmptyTensor.h>
#include <c10/util/Exception.h>

namespace weft::torch_backend {
namespace {

std::vector<at::Tensor> tensors_of_units(std::vector<ShardedUnits::Unit> const& units) {
  std::vector<at::Tensor> all;
  for (auto const& unit : units) {
    auto const tensors = tensors_of(unit.groups);
    all.insert(all.end(), tensors.begin(), tensors.end());
  }
  return all;
}

std::vector<ShardedUnit> sharded_units(std::vector<ShardedUnits::Unit> const& units) {
  std::vector<ShardedUnit> sharded;
  for (auto const& unit : units) {
    auto& groups = sharded.emplace_back(ShardedUnit{unit.name, {}}).groups;
    for (auto const& group : unit.groups) groups.push_back({views_of(group.parameters), group.options});
  }
  return sharded;
}

/// Of so many bytes that are not there.
c10::Storage storage_without_memory(std::size_t bytes, c10::Device device) {
  return {c10::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, device), nullptr, false};
}

void point(c10::Storage const& storage, void* memory) {
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(memory, storage.device()));
}

at::Tensor tensor_with(c10::Storage const& storage, at::Tensor const& like) {
  auto const key = storage.device().is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  return tensor;
}

FullyShardedOptions computing_on(FullyShardedOptions options, std::optional<Stream> const& compute) {
  options.compute = compute;
  return options;
}

/// As a tensor of the parameter's layout; `memory` outlives it.
at::Tensor laid_out_as(at::Tensor const& like, BufferView const& memory) {
  return tensor_over(memory, like, nullptr);
}

}  // namespace

ShardedUnits::ShardedUnits(ProcessGroupWeft& group, std::vector<Unit> const& units, FullyShardedOptions const& options,
                           MemoryAccount const& account)
    : ShardedModel(group, tensors_of_units(units), account), model_(charged([&] {
        return FullySharded(communicator(), sharded_units(units), computing_on(options, compute().weft()));
      })) {
  for (auto const& unit : units) {
    record_uses(unit.groups);
    first_.push_back(tensors_.size());
    for (auto const& like : tensors_of(unit.groups)) {
      storages_.push_back(storage_without_memory(like.nbytes(), like.device()));
      tensors_.push_back(tensor_with(storages_.back(), like));
    }
  }
  first_.push_back(tensors_.size());
}

void ShardedUnits::place(std::size_t unit) {
  for (std::size_t i = first_[unit]; i < first_[unit + 1]; ++i) point(storages_[i], model_.parameter(i).data);
}

void ShardedUnits::remove(std::size_t unit) {
  for (std::size_t i = first_[unit]; i < first_[unit + 1]; ++i) point(storages_[i], nullptr);
}

void ShardedUnits::before_forward(std::size_t unit) {
  as_torch([&] { compute().in_order([&] { model_.before_forward(unit); }); });
  place(unit);
}

void ShardedUnits::after_forward(std::size_t unit) {
  remove(unit);
  compute().follow_current();
  as_torch([&] { model_.after_forward(unit); });
}

void ShardedUnits::before_backward(std::size_t unit) {
  as_torch([&] { compute().in_order([&] { model_.before_backward(unit); }); });
  place(unit);
}

void ShardedUnits::after_backward(std::size_t unit, std::vector<std::size_t> const& unused) {
  remove(unit);
  compute().follow_current();
  as_torch([&] {
    for (auto const index : unused) model_.mark_unused(index);
    model_.after_backward(unit);
  });
}

void ShardedUnits::take_gradient(std::size_t index, at::Tensor const& gradient) {
  auto const to = as_torch([&] { return laid_out_as(tensors_[index], model_.gradient(index)); });
  compute().lead_current();
  if (model_.holds_gradients(model_.unit_of(index))) {
    to.add_(gradient);
  } else {
    to.copy_(gradient);
  }
  compute().follow_current();
}

void ShardedUnits::lend(std::size_t index, at::Tensor const& whole) {
  TORCH_CHECK_VALUE(whole.strides() == tensors_[index].strides() &&
                        whole.scalar_type() == tensors_[index].scalar_type() &&
                        whole.device() == tensors_[index].device(),
                    "weft: memory for parameter ", index, " is laid out otherwise");
  storages_[index].unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(
      whole.mutable_data_ptr(), new at::Tensor(whole), [](void* kept) { delete static_cast<at::Tensor*>(kept); },
      whole.device()));
}

void ShardedUnits::take_back(std::size_t index) {
  point(storages_[index], nullptr);
}

void ShardedUnits::set_sync(bool sync) {
  charged([&] { compute().in_order([&] { model_.set_sync(sync); }); });
}

void ShardedUnits::step() {
  charged([&] { compute().in_order([&] { model_.step(); }); });
}

at::Tensor absent_tensor(at::Tensor const& like, std::string const& message) {
  auto const storage = storage_without_memory(like.nbytes(), like.device());
  auto tensor = tensor_with(storage, like);
  if (like.numel() != 0) storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(message);
  return tensor;
}

}  // namespace weft::torch_backend
