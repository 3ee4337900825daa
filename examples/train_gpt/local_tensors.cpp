#include "local_tensors.hpp"

#include <utility>

#include <weft/convert.hpp>
#include <weft/memory.hpp>

namespace train_gpt {

LocalTensors::LocalTensors(GptParameters const& parameters, std::uint64_t seed) {
  weft::MemoryScope const scope(weft::MemoryKind::parameters);
  for (std::size_t i = 0; i < parameters.tensors().size(); ++i) {
    memory_.push_back(weft::Buffer::host(parameters.tensors()[i].count, weft::DataType::f32));
    parameters_.push_back(memory_.back().view());
    parameters.initialise(i, seed, memory_.back().as<float>());
  }
}

void LocalTensors::add_gradients() {
  weft::MemoryScope const scope(weft::MemoryKind::gradients);
  for (weft::BufferView const& parameter : parameters_) {
    gradients_.push_back(weft::Buffer::host(parameter.count, parameter.dtype));
  }
}

std::vector<weft::Buffer> LocalTensors::take(weft::DataType type) && {
  parameters_.clear();
  std::vector<weft::Buffer> taken = std::move(memory_);
  if (type == weft::DataType::f32) return taken;
  weft::MemoryScope const scope(weft::MemoryKind::parameters);
  for (weft::Buffer& values : taken) {
    weft::Buffer rounded = weft::Buffer::host(values.count(), type);
    weft::convert(values.view(), rounded.view());
    values = std::move(rounded);
  }
  return taken;
}

std::vector<weft::BufferView> views_of(std::vector<weft::Buffer> const& buffers) {
  std::vector<weft::BufferView> views;
  for (weft::Buffer const& buffer : buffers) views.push_back(buffer.view());
  return views;
}

}  // namespace train_gpt
