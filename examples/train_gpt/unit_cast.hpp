#pragma once

#include <cstddef>
#include <vector>

#include <weft/buffer.hpp>
#include <weft/memory.hpp>

#include "gpt_parameters.hpp"

namespace train_gpt {

/// f32 copies of the one unit that is in use, of parameters and gradients that are kept in 16 bits. Those kept in f32
/// are used where they are.
class UnitCast {
 public:
  explicit UnitCast(GptParameters const& parameters);

  /// Forgets the copies.
  void enter() noexcept;
  /// Of tensor `index`, kept in `stored`. Valid until enter().
  [[nodiscard]] float const* parameter(std::size_t index, weft::BufferView stored);
  /// Likewise; with `keep` the copy starts with what is stored.
  [[nodiscard]] float* gradient(std::size_t index, weft::BufferView stored, bool keep);
  /// Rounds the copy into `stored`.
  void store_gradient(std::size_t index, weft::BufferView stored);

 private:
  /// Copies of a unit's tensors, side by side.
  struct Copies {
    weft::MemoryCharge charge;
    std::vector<float> values;
    std::vector<char> present;  ///< by tensor
  };
  [[nodiscard]] std::span<float> room(Copies& copies, std::size_t index) const;

  std::vector<std::size_t> offsets_;  ///< by tensor, within its unit
  std::vector<std::size_t> counts_;
  std::size_t largest_unit_;
  Copies parameters_;
  Copies gradients_;
};

}  // namespace train_gpt
