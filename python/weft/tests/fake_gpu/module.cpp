// What Python sees of the fake GPU.
#include <memory>

#include <torch/csrc/utils/pybind.h>

#include "cuda/fake/fake_gpu.hpp"
#include "cuda/fake/fake_nccl.hpp"
#include "device.hpp"

namespace py = pybind11;

namespace weft {

// In the place of src/collectives/nccl/nccl_open.cpp.
std::shared_ptr<nccl::NcclLibrary const> nccl::NcclLibrary::open(Config const& /*config*/) {
  return test::FakeNccl::libraries().nccl;
}

}  // namespace weft

namespace weft::test {
namespace {

/// A stream that waits until somebody opens it.
class Gate {
 public:
  explicit Gate(c10::Stream stream) {
    static_cast<void>(FakeGpu::current().enqueue(handle_of(stream), [signal = signal_] { signal->wait(); }));
  }
  void open() { signal_->set(); }

 private:
  std::shared_ptr<Signal> signal_ = std::make_shared<Signal>(FakeGpu::current().ending());
};

}  // namespace
}  // namespace weft::test

PYBIND11_MODULE(_fake_gpu, module) {
  using namespace weft::test;
  module.def("install", [](int devices) {
    // For good: torch's tensors and groups may outlive everything here.
    new FakeGpu(devices);
    new FakeNccl;
    install_fake_cuda(devices);
  });
  module.def("set_device", [](int device) { static_cast<void>(FakeGpu::functions().set_device(device)); });
  module.def("new_stream", [](int device) { return new_stream(static_cast<c10::DeviceIndex>(device)); });
  module.def("current_stream", [](int device) { return current_stream(static_cast<c10::DeviceIndex>(device)); });
  module.def("default_stream", [](int device) { return stream_of(0, static_cast<c10::DeviceIndex>(device)); });
  module.def("set_stream", [](c10::Stream stream) { set_current_stream(stream); });
  module.def(
      "synchronize", [] { static_cast<void>(FakeGpu::functions().device_synchronize()); },
      py::call_guard<py::gil_scoped_release>());
  py::class_<Gate>(module, "Gate", "Nothing that comes on the stream runs before open().")
      .def(py::init<c10::Stream>())
      .def("open", &Gate::open);
  module.def("calls", [](std::string const& name) { return FakeGpu::current().count(name); });
  module.def("host_waits_here", [] { return FakeGpu::current().host_waits_here(); });
  module.def(
      "host_waits",
      [] {
        std::size_t waits = 0;
        for (auto const* name : {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaFree", "cudaDeviceSynchronize"})
          waits += FakeGpu::current().count(name);
        return waits;
      },
      "Of all threads; those that only ask do not count.");
  module.def("violations", [] { return FakeGpu::current().violations(); });
  module.def("recorded_uses", &recorded_uses);
  module.def("live_bytes", [] { return FakeGpu::current().live_bytes(); });
  module.def("fail_next", [](std::string const& name) { FakeNccl::current().fail_next(name, ncclSystemError); });
}
