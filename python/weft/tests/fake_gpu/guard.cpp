// torch's interface of devices, over the table of CUDA's functions that the fake stands behind.
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "cuda/fake/fake_gpu.hpp"
#include "device.hpp"

namespace weft::test {
namespace {

cuda::CudaFunctions const& cuda() {
  return FakeGpu::functions();
}

void check(cudaError_t status) {
  TORCH_CHECK(status == cudaSuccess, "fake CUDA error ", static_cast<int>(status));
}

/// torch's streams by number; 0 is the default stream of a device.
struct Streams {
  std::mutex mutex;
  std::vector<cudaStream_t> handles{nullptr};
};
Streams& streams() {
  static auto& all = *new Streams;
  return all;
}

thread_local std::map<c10::DeviceIndex, c10::StreamId> current_ids;

int devices_ = 0;

class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device to) const override {
    auto const before = getDevice();
    setDevice(to);
    return before;
  }
  c10::Device getDevice() const override {
    int index = 0;
    check(cuda().get_device(&index));
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
  }
  void setDevice(c10::Device to) const override { check(cuda().set_device(to.index())); }
  void uncheckedSetDevice(c10::Device to) const noexcept override { static_cast<void>(cuda().set_device(to.index())); }
  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.has_index() ? device.index() : getDevice().index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(0, device.index()); }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override { return new_stream(device.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    return new_stream(device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto const before = current_stream(stream.device_index());
    set_current_stream(stream);
    return before;
  }
  void* getStreamNativeHandle(c10::Stream stream) const override { return handle_of(stream); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(devices_); }

  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    if (event != nullptr) static_cast<void>(cuda().event_destroy(static_cast<cudaEvent_t>(event)));
  }
  void record(void** event, c10::Stream const& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    auto made = static_cast<cudaEvent_t>(*event);
    if (made == nullptr) check(cuda().event_create_with_flags(&made, cudaEventDisableTiming));
    *event = made;
    check(cuda().event_record(made, handle_of(stream)));
  }
  void block(void* event, c10::Stream const& stream) const override {
    if (event != nullptr) check(cuda().stream_wait_event(handle_of(stream), static_cast<cudaEvent_t>(event), 0));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || cuda().event_query(static_cast<cudaEvent_t>(event)) == cudaSuccess;
  }
  bool queryStream(c10::Stream const& stream) const override {
    cudaEvent_t event = nullptr;
    check(cuda().event_create_with_flags(&event, cudaEventDisableTiming));
    check(cuda().event_record(event, handle_of(stream)));
    bool const through = cuda().event_query(event) == cudaSuccess;
    check(cuda().event_destroy(event));
    return through;
  }
  void synchronizeStream(c10::Stream const& stream) const override {
    check(cuda().stream_synchronize(handle_of(stream)));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) check(cuda().event_synchronize(static_cast<cudaEvent_t>(event)));
  }
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override { check(cuda().device_synchronize()); }
  void recordDataPtrOnStream(c10::DataPtr const& memory, c10::Stream const& stream) const override {
    record_use(memory, handle_of(stream));
  }
};

/// What autograd asks, which else would not know streams: it runs nodes on those of their forward.
struct FakeHooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(devices_); }
  int getNumGPUs() const override { return devices_; }
  c10::DeviceIndex getCurrentDevice() const override {
    int index = 0;
    check(cuda().get_device(&index));
    return static_cast<c10::DeviceIndex>(index);
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { check(cuda().set_device(device)); }
};

}  // namespace

/// DDP times its steps by CUDA events of torch's own.
class NoTimer final : public c10d::Timer {
 public:
  std::optional<std::int64_t> measureDifference(Event /*from*/, Event /*to*/) override { return std::nullopt; }
};

void install_fake_cuda(int devices) {
  static FakeGuard const guard;
  devices_ = devices;
  c10::impl::DeviceGuardImplRegistrar const registrar(c10::kCUDA, &guard);
  // torch has made its own long ago, and for good; an object of the same class, which has no members.
  auto const& hooks = at::detail::getCUDAHooks();
  static_assert(sizeof(FakeHooks) == sizeof(at::CUDAHooksInterface));
  new (const_cast<at::CUDAHooksInterface*>(&hooks)) FakeHooks;
  c10d::TimerRegistry()->Register(
      c10::kCUDA, [](c10::Device /*device*/) { return std::make_unique<NoTimer>(); }, c10::REGISTRY_PREFERRED);
}

c10::Stream new_stream(c10::DeviceIndex device) {
  cudaStream_t handle = nullptr;
  check(cuda().stream_create_with_priority(&handle, cudaStreamNonBlocking, 0));
  std::scoped_lock const lock(streams().mutex);
  streams().handles.push_back(handle);
  return stream_of(static_cast<c10::StreamId>(streams().handles.size() - 1), device);
}

c10::Stream stream_of(c10::StreamId id, c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, device), id);
}

c10::Stream current_stream(c10::DeviceIndex device) {
  return stream_of(current_ids[device], device);
}

void set_current_stream(c10::Stream stream) {
  current_ids[stream.device_index()] = stream.id();
}

cudaStream_t handle_of(c10::Stream stream) {
  std::scoped_lock const lock(streams().mutex);
  return streams().handles.at(static_cast<std::size_t>(stream.id()));
}

}  // namespace weft::test
