#include "device.hpp"

#include <algorithm>

#include <c10/util/Exception.h>

#include "tensor_pool.hpp"

#if WEFT_TORCH_CUDA
#include "weft/cuda.hpp"
#include "weft/cuda_graph.hpp"
#endif

namespace weft::torch_backend {
namespace {

/// The most streams to keep wrapped. Torch hands out few; for programs that wrap many of their own, the list starts
/// again.
constexpr std::size_t kMostWrapped = 64;
/// In torch, lower numbers mean higher priority.
constexpr int kHighPriority = -1;

Stream wrap([[maybe_unused]] void* handle, [[maybe_unused]] c10::Device device) {
#if WEFT_TORCH_CUDA
  return cuda::wrap_stream(static_cast<cuda::StreamHandle>(handle), device.index());
#else
  TORCH_CHECK(false, "weft: built without CUDA");
#endif
}

c10::Device checked(c10::Device device, Place const& place) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      moves_gpu_tensors(), place,
      ": this weft was built without CUDA, or without NCCL 2.28 or newer, and moves CPU tensors ",
      "only: install it where nvcc and nccl.h are (pip install --no-build-isolation -C cmake.define.WEFT_CUDA=ON "
      "./python/weft), or use \"cpu:weft,cuda:nccl\"");
  TORCH_CHECK_VALUE(device.is_cuda() && device.has_index(), place, ": ", device,
                    " is no GPU that weft serves; name one, such as cuda:0");
  return device;
}

/// Records a use, also for memory that is not from torch's own allocator, which would ignore it.
void record(c10::impl::VirtualGuardImpl const& torch, at::Tensor const& tensor, c10::Stream stream) {
  auto const& memory = tensor.storage().data_ptr();
  if (auto* const block = TensorPool::block_of(memory)) return block->record_use(stream);
  torch.recordDataPtrOnStream(memory, stream);
}

}  // namespace

bool moves_gpu_tensors() noexcept {
  return WEFT_TORCH_CUDA != 0;
}

Device weft_device(c10::Device device) noexcept {
  return device.is_cpu() ? Device{} : Device{DeviceType::cuda, device.index()};
}

GpuStreams::GpuStreams(c10::Device device, Place const& place)
    : torch_(checked(device, place).type()),
      communication_(torch_.getNewStream(device, kHighPriority)),
      reached_(device.type()) {}

Stream GpuStreams::weft(c10::Stream stream) {
  void* const handle = stream.native_handle();
  std::lock_guard const lock(mutex_);
  auto const found =
      std::find_if(wrapped_.begin(), wrapped_.end(), [&](auto const& known) { return known.first == handle; });
  if (found != wrapped_.end()) return found->second;
  if (wrapped_.size() == kMostWrapped) wrapped_.clear();
  return wrapped_.emplace_back(handle, wrap(handle, device())).second;
}

bool GpuStreams::is_capturing([[maybe_unused]] c10::Stream stream) {
#if WEFT_TORCH_CUDA
  return cuda::is_capturing(weft(stream));
#else
  return false;
#endif
}

void GpuStreams::follow_current() {
  auto const stream = current();
  if (stream == communication_) return;
  std::lock_guard const lock(mutex_);
  reached_.record(stream);
  reached_.block(communication_);
}

void GpuStreams::record_use(at::Tensor const& tensor, c10::Stream stream) const {
  if (tensor.defined() && tensor.device() == device()) record(torch_, tensor, stream);
}

OnStream::OnStream(c10::Stream stream)
    : torch_(stream.device_type()),
      device_before_(torch_.exchangeDevice(stream.device())),
      stream_before_(torch_.exchangeStream(stream)) {}

OnStream::~OnStream() {
  torch_.exchangeStream(stream_before_);
  torch_.uncheckedSetDevice(device_before_);
}

Stream current_stream(c10::Device device) {
  return wrap(c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle(), device);
}

void record_use_here(at::Tensor const& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) return;
  c10::impl::VirtualGuardImpl const torch(tensor.device().type());
  record(torch, tensor, torch.getStream(tensor.device()));
}

}  // namespace weft::torch_backend
