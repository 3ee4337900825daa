#include "compute_stream.hpp"

#include <c10/util/Exception.h>

#include "device.hpp"

namespace weft::torch_backend {

ComputeStream::OnGpu::OnGpu(c10::Device device)
    : torch(device.type()), home(torch.getStream(device)), came(device.type()), left(device.type()) {}

ComputeStream::ComputeStream(c10::Device device) {
  if (device.is_cpu()) return;
  TORCH_CHECK_NOT_IMPLEMENTED(moves_gpu_tensors(), "weft: built without CUDA, so it has no streams on ", device);
  gpu_.emplace(device);
  weft_ = current_stream(device);
}

void ComputeStream::follow_current() {
  if (!gpu_) return;
  auto const current = gpu_->torch.getStream(gpu_->home.device());
  if (current == gpu_->home) return;
  gpu_->came.record(current);
  gpu_->came.block(gpu_->home);
}

void ComputeStream::lead_current() {
  if (!gpu_) return;
  auto const current = gpu_->torch.getStream(gpu_->home.device());
  if (current == gpu_->home) return;
  gpu_->left.record(gpu_->home);
  gpu_->left.block(current);
}

}  // namespace weft::torch_backend
