#include "unit_cast.hpp"

#include <algorithm>
#include <span>

#include <weft/convert.hpp>

namespace train_gpt {
namespace {

bool is_f32(weft::BufferView const& view) {
  return view.dtype == weft::DataType::f32;
}

}  // namespace

UnitCast::UnitCast(GptParameters const& parameters) : largest_unit_(parameters.largest_unit()) {
  for (GptParameters::Unit const& unit : parameters.units()) {
    std::size_t offset = 0;
    for (std::size_t i = unit.first; i < unit.first + unit.count; ++i) {
      offsets_.push_back(offset);
      counts_.push_back(parameters.tensors()[i].count);
      offset += counts_.back();
    }
  }
  parameters_.present.assign(offsets_.size(), 0);
  gradients_.present.assign(offsets_.size(), 0);
}

void UnitCast::enter() noexcept {
  std::fill(parameters_.present.begin(), parameters_.present.end(), 0);
  std::fill(gradients_.present.begin(), gradients_.present.end(), 0);
}

std::span<float> UnitCast::room(Copies& copies, std::size_t index) const {
  if (copies.values.empty()) {
    copies.charge = {weft::MemoryKind::activations, largest_unit_ * sizeof(float)};
    copies.values.resize(largest_unit_);
  }
  return std::span(copies.values).subspan(offsets_[index], counts_[index]);
}

float const* UnitCast::parameter(std::size_t index, weft::BufferView stored) {
  if (is_f32(stored)) return static_cast<float const*>(stored.data);
  std::span<float> const copy = room(parameters_, index);
  if (parameters_.present[index] == 0) weft::convert(stored, copy);
  parameters_.present[index] = 1;
  return copy.data();
}

float* UnitCast::gradient(std::size_t index, weft::BufferView stored, bool keep) {
  if (is_f32(stored)) return static_cast<float*>(stored.data);
  std::span<float> const copy = room(gradients_, index);
  if (keep && gradients_.present[index] == 0) weft::convert(stored, copy);
  gradients_.present[index] = 1;
  return copy.data();
}

void UnitCast::store_gradient(std::size_t index, weft::BufferView stored) {
  if (!is_f32(stored)) weft::convert(room(gradients_, index), stored);
}

}  // namespace train_gpt
