#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/cpu/optim/block_state.hpp"
#include "kernels/cuda/optim/table.hpp"
#include "optim/cuda/gpu.hpp"
#include "optim/rule.hpp"
#include "weft/memory.hpp"
#include "weft/optimizer.hpp"

namespace weft::cuda {

/// Where one parameter's f32 master and states are: byte offsets in an optimizer's memory.
struct StateLayout {
  static constexpr std::size_t kNone = SIZE_MAX;

  std::size_t master = kNone;
  std::size_t values[3] = {kNone, kNone, kNone};  ///< f32, or bytes where packed
  std::size_t scales[3] = {kNone, kNone, kNone};  ///< where packed
};

/// The same as addresses in a machine's memory; null where there is none.
struct StatePlaces {
  float* master = nullptr;
  void* values[3] = {};
  float* scales[3] = {};
};

/// Lays out a parameter's arrays behind `end`, each at a multiple of 256 bytes, and moves `end` behind them.
[[nodiscard]] StateLayout lay_out(BufferView const& parameter, OptimizerOptions const& options,
                                  OptimizerSettings const& settings, std::size_t& end);

/// What optimizers keep of their parameters in a machine's memory: memory of its own or, where borrow() is called, the
/// caller's. read() and write() are for checkpoints, and block.
template <typename Machine>
class DeviceStates {
 public:
  DeviceStates(Machine machine, bool packs) : machine_(machine), packs_(packs) {}

  /// Allocates zeros, laid out as `layouts` say.
  void allocate(std::vector<StateLayout> const& layouts, std::size_t bytes) {
    memory_ = machine_.allocate(bytes);
    for (auto const& layout : layouts) {
      StatePlaces& places = places_.emplace_back();
      places.master = static_cast<float*>(at(layout.master));
      for (std::size_t which = 0; which < 3; ++which) {
        places.values[which] = at(layout.values[which]);
        places.scales[which] = static_cast<float*>(at(layout.scales[which]));
      }
    }
  }
  void borrow(std::vector<ParameterMemory> const& memory) {
    for (auto const& one : memory) {
      StatePlaces& places = places_.emplace_back();
      places.master = static_cast<float*>(one.master.data);
      for (std::size_t which = 0; which < one.states.size(); ++which) places.values[which] = one.states[which].data;
    }
  }

  [[nodiscard]] StatePlaces const& of(std::size_t index) const { return places_[index]; }
  [[nodiscard]] bool packs() const noexcept { return packs_; }

  [[nodiscard]] std::vector<float> read(std::size_t index, std::size_t which, std::size_t count,
                                        kernels::StateCode code) const {
    std::vector<float> values(count);
    auto const& places = of(index);
    if (!packs_) {
      machine_.read(values.data(), places.values[which], count * sizeof(float));
      return values;
    }
    std::vector<std::uint8_t> packed(count);
    std::vector<float> scales(blocks(count));
    machine_.read(packed.data(), places.values[which], packed.size());
    machine_.read(scales.data(), places.scales[which], scales.size() * sizeof(float));
    for_each_block(count, [&](std::size_t first, std::size_t length, std::size_t block) {
      kernels::unpack_state(code, packed.data() + first, scales[block], length, values.data() + first);
    });
    return values;
  }

  void write(std::size_t index, std::size_t which, std::span<float const> values, kernels::StateCode code) {
    auto const& places = of(index);
    if (!packs_) return machine_.write(places.values[which], values.data(), values.size() * sizeof(float));
    std::vector<std::uint8_t> packed(values.size());
    std::vector<float> scales(blocks(values.size()));
    for_each_block(values.size(), [&](std::size_t first, std::size_t length, std::size_t block) {
      scales[block] =
          kernels::pack_state(code, values.data() + first, length, kernels::kNearest, packed.data() + first);
    });
    machine_.write(places.values[which], packed.data(), packed.size());
    machine_.write(places.scales[which], scales.data(), scales.size() * sizeof(float));
  }

 private:
  static std::size_t blocks(std::size_t count) { return (count + kernels::kStateBlock - 1) / kernels::kStateBlock; }
  template <typename F>
  static void for_each_block(std::size_t count, F const& f) {
    for (std::size_t first = 0; first < count; first += kernels::kStateBlock) {
      f(first, std::min(kernels::kStateBlock, count - first), first / kernels::kStateBlock);
    }
  }

  [[nodiscard]] void* at(std::size_t offset) const {
    return offset == StateLayout::kNone ? nullptr : static_cast<std::byte*>(memory_.data()) + offset;
  }

  Machine machine_;
  bool packs_;
  Buffer memory_;
  std::vector<StatePlaces> places_;  // by parameter
};

}  // namespace weft::cuda
