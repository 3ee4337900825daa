// torch's memory on the fake GPU.
#include <atomic>
#include <memory>
#include <mutex>
#include <set>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>

#include "cuda/fake/fake_gpu.hpp"
#include "device.hpp"

namespace weft::test {
namespace {

std::atomic<std::size_t> uses{0};

struct Block {
  void* memory;
  cudaStream_t home;
  std::mutex mutex;
  std::set<cudaStream_t> used_on;
};

void release(void* context) {
  std::unique_ptr<Block> const block(static_cast<Block*>(context));
  auto const& cuda = FakeGpu::functions();
  for (auto const stream : block->used_on) {
    cudaEvent_t event = nullptr;
    static_cast<void>(cuda.event_create_with_flags(&event, cudaEventDisableTiming));
    static_cast<void>(cuda.event_record(event, stream));
    static_cast<void>(cuda.stream_wait_event(block->home, event, 0));
    static_cast<void>(cuda.event_destroy(event));
  }
  static_cast<void>(cuda.free_async(block->memory, block->home));
}

class FakeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    int device = 0;
    static_cast<void>(FakeGpu::functions().get_device(&device));
    c10::Device const where(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) return {nullptr, where};
    void* const memory = FakeGpu::current().take_memory(bytes);
    auto* const block = new Block{memory, handle_of(current_stream(where.index())), {}, {}};
    return {memory, block, release, where};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, void const* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

c10::Allocator* fake_allocator() {
  static FakeAllocator allocator;
  return &allocator;
}

void record_use(c10::DataPtr const& memory, cudaStream_t stream) {
  if (memory.get_deleter() != release) return;
  ++uses;
  auto& block = *static_cast<Block*>(memory.get_context());
  std::scoped_lock const lock(block.mutex);
  if (stream != block.home) block.used_on.insert(stream);
}

std::size_t recorded_uses() {
  return uses;
}

at::Tensor empty_on_gpu(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  return at::detail::empty_strided_generic(sizes, strides, fake_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), type);
}

at::Tensor host_view(at::Tensor const& tensor) {
  auto const options = at::TensorOptions().dtype(tensor.scalar_type()).device(c10::kCPU);
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options);
}

}  // namespace weft::test
