#include "state_memory.hpp"

#include <cstddef>
#include <memory>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "weft/buffer.hpp"
#include "weft/memory.hpp"

namespace weft::torch_backend {
namespace {

/// One state after the other, each from a multiple of `alignment` bytes on.
class StateLayout {
 public:
  StateLayout(std::vector<std::int64_t> const& sizes, std::int64_t alignment)
      : sizes_(sizes), unit_(alignment / static_cast<std::int64_t>(sizeof(float))) {
    for (auto const size : sizes_) elements_ += room_of(size);
  }

  [[nodiscard]] std::int64_t elements() const noexcept { return elements_; }
  /// In memory of so many elements, which `owner` keeps.
  [[nodiscard]] std::vector<at::Tensor> tensors(float* memory, c10::Device device, std::shared_ptr<void> owner) const {
    std::vector<at::Tensor> tensors;
    for (auto const size : sizes_) {
      tensors.push_back(at::for_blob(memory, {size})
                            .deleter([owner](void*) {})
                            .options(at::TensorOptions(at::kFloat).device(device))
                            .target_device(device)
                            .make_tensor());
      memory += room_of(size);
    }
    return tensors;
  }

 private:
  [[nodiscard]] std::int64_t room_of(std::int64_t size) const noexcept { return (size + unit_ - 1) / unit_ * unit_; }

  std::vector<std::int64_t> const& sizes_;
  std::int64_t unit_;
  std::int64_t elements_ = 0;
};

}  // namespace

std::vector<at::Tensor> state_memory(std::vector<std::int64_t> const& sizes) {
  StateLayout const layout(sizes, 64);
  auto const buffer = Buffer::host(static_cast<std::size_t>(layout.elements()), DataType::f32);
  return layout.tensors(static_cast<float*>(buffer.data()), at::kCPU, buffer.owner());
}

std::vector<at::Tensor> state_memory_on_gpu(std::vector<std::int64_t> const& sizes, c10::Device device) {
  StateLayout const layout(sizes, 256);
  struct Memory {
    MemoryCharge charge;
    at::Tensor flat;
  };
  auto const memory = std::make_shared<Memory>();
  memory->charge = MemoryCharge(MemoryKind::optimizer, static_cast<std::size_t>(layout.elements()) * sizeof(float));
  memory->flat = at::zeros({layout.elements()}, at::TensorOptions(at::kFloat).device(device));
  return layout.tensors(memory->flat.mutable_data_ptr<float>(), device, memory);
}

}  // namespace weft::torch_backend
