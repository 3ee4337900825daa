#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "runtime/cuda/check.hpp"
#include "weft/buffer.hpp"
#include "weft/cuda.hpp"
#include "weft/error.hpp"

namespace weft::cuda {

/// One GPU's memory and launches, as the host code of this folder uses them. That code takes the machine as a template
/// argument, so that tests can run it, and the kernels' bodies, on machines without a GPU
/// (tests/cuda/kernels/host_machine.hpp).
class Gpu {
 public:
  explicit Gpu(int device) : device_(device) {}

  [[nodiscard]] Device device() const noexcept { return {DeviceType::cuda, device_}; }

  /// Zero-filled memory, aligned to 256 bytes. Blocks.
  [[nodiscard]] Buffer allocate(std::size_t bytes) const { return cuda::allocate(bytes, DataType::u8, device_); }

  /// Both copy once all work of the device is done, and block.
  void write(void* to, void const* from, std::size_t bytes) const;
  void read(void* to, void const* from, std::size_t bytes) const;

  /// Waits for all work of the device.
  void synchronize() const;
  /// Whether what is launched now goes into a CUDA graph instead of running.
  [[nodiscard]] bool is_capturing(Stream const* stream) const;

  /// `stream` null: the device's legacy default stream. @throws Error{invalid_argument} for a stream of another device.
  template <typename Body>
  void launch(Body const& body, std::size_t blocks, Stream const* stream) const {
    if (blocks == 0) return;
    DeviceGuard const guard(device_);
    check(kernels::cuda::launch(body, static_cast<unsigned>(blocks), stream_of(stream)), "launch of a kernel");
  }

 private:
  void copy(void* to, void const* from, std::size_t bytes) const;
  [[nodiscard]] StreamHandle stream_of(Stream const* stream) const;

  int device_;
};

/// Copies `values` to new memory of a machine.
template <typename Machine, typename T>
[[nodiscard]] Buffer upload(Machine const& machine, std::vector<T> const& values) {
  Buffer memory = machine.allocate(values.size() * sizeof(T));
  if (!values.empty()) machine.write(memory.data(), values.data(), values.size() * sizeof(T));
  return memory;
}

/// Copies one T from a machine's memory.
template <typename T, typename Machine>
[[nodiscard]] T download(Machine const& machine, void const* from) {
  T value;
  machine.read(&value, from, sizeof value);
  return value;
}

}  // namespace weft::cuda
