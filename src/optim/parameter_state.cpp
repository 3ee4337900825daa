#include "optim/parameter_state.hpp"

#include <algorithm>
#include <utility>

#include "kernels/cpu/optim/gradients.hpp"

namespace weft {

using kernels::kStateBlock;

namespace {

bool needs_master(BufferView const& parameter, OptimizerSettings const& settings) {
  return settings.master_weights && parameter.dtype != DataType::f32;
}

/// Rounds a count up, so that arrays begin on cache lines.
std::size_t stride(std::size_t count) {
  constexpr std::size_t kLine = 64 / sizeof(float);
  return (count + kLine - 1) / kLine * kLine;
}

}  // namespace

std::size_t ParameterState::memory_needed(BufferView const& parameter, OptimizerOptions const& options,
                                          OptimizerSettings const& settings) {
  std::size_t const states = settings.state == StateType::block8 ? 0 : state_names(options).size();
  return stride(parameter.count) * (states + (needs_master(parameter, settings) ? 1 : 0));
}

ParameterState::ParameterState(BufferView parameter, OptimizerOptions const& options, OptimizerSettings const& settings,
                               float* memory)
    : parameter_(parameter), packs_(settings.state == StateType::block8) {
  auto const next = [&] { return std::exchange(memory, memory + stride(parameter.count)); };
  if (needs_master(parameter, settings)) {
    master_ = BufferView(next(), parameter.count, DataType::f32);
    refresh_master();
  }
  auto const states = state_names(options).size();
  for (std::size_t which = 0; which < states; ++which) {
    auto const kind = state_kind(options, which);
    if (packs_) {
      auto const blocks = (parameter.count + kStateBlock - 1) / kStateBlock;
      MemoryCharge charge(MemoryKind::optimizer, parameter.count + blocks * sizeof(float));
      packed_.push_back(
          {std::vector<std::uint8_t>(parameter.count), std::vector<float>(blocks), kind.code, std::move(charge)});
    } else {
      states_.emplace_back(next(), parameter.count);
    }
    if (packs_ || kind.initial != 0) set_state(which, std::vector<float>(parameter.count, kind.initial));
  }
}

ParameterState::ParameterState(BufferView parameter, ParameterMemory const& memory)
    : parameter_(parameter), master_(memory.master), packs_(false) {
  for (auto const& state : memory.states) states_.emplace_back(static_cast<float*>(state.data), state.count);
}

void ParameterState::refresh_master() {
  if (master_.data != nullptr) {
    kernels::convert(parameter_.data, parameter_.dtype, master_.data, DataType::f32, parameter_.count);
  }
}

std::size_t ParameterState::block_length(std::size_t first) const noexcept {
  return std::min(kStateBlock, parameter_.count - first);
}

void ParameterState::unpack(std::size_t which, std::size_t first, std::size_t count, float* values) const {
  auto const& packed = packed_[which];
  kernels::unpack_state(packed.code, packed.values.data() + first, packed.scales[first / kStateBlock], count, values);
}

void ParameterState::pack(std::size_t which, std::size_t first, std::size_t count, std::uint32_t seed,
                          float const* values) {
  auto& packed = packed_[which];
  packed.scales[first / kStateBlock] =
      kernels::pack_state(packed.code, values, count, seed, packed.values.data() + first);
}

kernels::UpdateArrays ParameterState::arrays(BufferView gradient, std::size_t first) const noexcept {
  auto const at = [first](void* data, DataType type) {
    return data == nullptr ? nullptr : static_cast<std::byte*>(data) + first * size_of(type);
  };
  kernels::UpdateArrays arrays;
  arrays.parameter = at(parameter_.data, parameter_.dtype);
  arrays.parameter_type = parameter_.dtype;
  arrays.master = reinterpret_cast<float*>(at(master_.data, DataType::f32));
  arrays.gradient = at(gradient.data, gradient.dtype);
  arrays.gradient_type = gradient.dtype;
  for (std::size_t which = 0; which < states_.size(); ++which) {
    arrays.state[which] = states_[which].data() + first;
  }
  return arrays;
}

std::vector<float> ParameterState::state(std::size_t which) const {
  std::vector<float> values(parameter_.count);
  if (!packs_) {
    std::ranges::copy(states_.at(which), values.begin());
    return values;
  }
  for (std::size_t first = 0; first < values.size(); first += kStateBlock) {
    unpack(which, first, block_length(first), values.data() + first);
  }
  return values;
}

void ParameterState::set_state(std::size_t which, std::span<float const> values) {
  if (!packs_) {
    std::ranges::copy(values, states_.at(which).begin());
    return;
  }
  for (std::size_t first = 0; first < values.size(); first += kStateBlock) {
    pack(which, first, block_length(first), kernels::kNearest, values.data() + first);
  }
}

std::size_t ParameterState::bytes() const noexcept {
  std::size_t bytes = master_.bytes() + states_.size() * parameter_.count * sizeof(float);
  for (auto const& packed : packed_) bytes += packed.values.size() + packed.scales.size() * sizeof(float);
  return bytes;
}

}  // namespace weft
