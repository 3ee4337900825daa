#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "optim/rule.hpp"
#include "weft/buffer.hpp"
#include "weft/memory.hpp"
#include "weft/optimizer.hpp"

namespace weft {

/// What an optimizer keeps of one parameter: its states, and an f32 master where the parameter is of a narrower type.
class ParameterState {
 public:
  /// How many f32 values of memory the constructor takes.
  [[nodiscard]] static std::size_t memory_needed(BufferView const& parameter, OptimizerOptions const& options,
                                                 OptimizerSettings const& settings);
  /// `memory`: zeros that begin on a cache line; must outlive this.
  ParameterState(BufferView parameter, OptimizerOptions const& options, OptimizerSettings const& settings,
                 float* memory);
  /// In the caller's memory, with what is in it.
  ParameterState(BufferView parameter, ParameterMemory const& memory);

  [[nodiscard]] BufferView parameter() const noexcept { return parameter_; }
  [[nodiscard]] BufferView master() const noexcept { return master_.data != nullptr ? master_ : parameter_; }
  /// Sets the master to the parameter's values.
  void refresh_master();

  /// Calls run(arrays, count) with all of the parameter at once or, where states are packed, block by block. Packed
  /// states are unpacked for the call and packed again after it, with the rounding that `seed` gives; without a seed
  /// the packed ones stay as they were. `gradient` may be empty.
  template <typename Run>
  void for_each_range(BufferView gradient, std::optional<std::uint32_t> seed, Run&& run);

  [[nodiscard]] std::vector<float> state(std::size_t which) const;
  void set_state(std::size_t which, std::span<float const> values);
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  struct Packed {
    std::vector<std::uint8_t> values;
    std::vector<float> scales;
    kernels::StateCode code{};
    MemoryCharge charge{};
  };

  [[nodiscard]] std::size_t block_length(std::size_t first) const noexcept;
  void unpack(std::size_t which, std::size_t first, std::size_t count, float* values) const;
  void pack(std::size_t which, std::size_t first, std::size_t count, std::uint32_t seed, float const* values);
  /// The arrays from element `first` on.
  [[nodiscard]] kernels::UpdateArrays arrays(BufferView gradient, std::size_t first) const noexcept;

  BufferView parameter_;
  BufferView master_;
  bool packs_;
  std::vector<std::span<float>> states_;
  std::vector<Packed> packed_;
};

template <typename Run>
void ParameterState::for_each_range(BufferView gradient, std::optional<std::uint32_t> seed, Run&& run) {
  if (!packs_) return run(arrays(gradient, 0), parameter_.count);
  std::array<std::array<float, kernels::kStateBlock>, 3> unpacked;
  for (std::size_t first = 0; first < parameter_.count; first += kernels::kStateBlock) {
    auto const count = block_length(first);
    auto block = arrays(gradient, first);
    for (std::size_t which = 0; which < packed_.size(); ++which) {
      unpack(which, first, count, unpacked[which].data());
      block.state[which] = unpacked[which].data();
    }
    run(block, count);
    if (!seed) continue;
    for (std::size_t which = 0; which < packed_.size(); ++which) {
      pack(which, first, count, kernels::block_seed(*seed, first, packed_.size(), which), unpacked[which].data());
    }
  }
}

}  // namespace weft
