#include "sharding/device_values.hpp"

#include "kernels/cpu/optim/gradients.hpp"
#include "runtime/stream_impl.hpp"

namespace weft {
namespace {

void copy_and_wait(void* to, void const* from, std::size_t bytes, Stream stream) {
  stream.impl().copy(to, from, bytes);
  stream.synchronize();
}

}  // namespace

std::vector<float> read_values(BufferView const& from, std::optional<Stream> const& stream) {
  std::vector<float> values(from.count);
  if (values.empty()) return values;
  BufferView here = from;
  Buffer copy;
  if (stream) {
    copy = Buffer::host(from.count, from.dtype);
    here = copy.view();
    copy_and_wait(here.data, from.data, from.bytes(), *stream);
  }
  kernels::convert(here.data, here.dtype, values.data(), DataType::f32, values.size());
  return values;
}

void write_values(std::span<float const> values, BufferView const& to, std::optional<Stream> const& stream) {
  if (values.empty()) return;
  if (!stream) return kernels::convert(values.data(), DataType::f32, to.data, to.dtype, values.size());
  Buffer const copy = Buffer::host(to.count, to.dtype);
  kernels::convert(values.data(), DataType::f32, copy.data(), to.dtype, values.size());
  copy_and_wait(to.data, copy.data(), to.bytes(), *stream);
}

}  // namespace weft
