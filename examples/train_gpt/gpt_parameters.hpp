#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "gpt_config.hpp"

namespace train_gpt {

/// What parameters a GPT has, wherever they are kept: tensors in forward order, in units that are used together: the
/// embedding, each block, the head.
class GptParameters {
 public:
  struct Tensor {
    std::string name;                ///< as "layer3.attention.qkv.weight"
    std::vector<std::size_t> shape;  ///< of weights: inputs, outputs
    std::size_t count = 0;           ///< elements
    std::size_t unit = 0;
  };

  /// Tensors [first, first + count).
  struct Unit {
    std::string name;  ///< "embedding", "layer3", "head"
    std::size_t first = 0;
    std::size_t count = 0;
  };

  explicit GptParameters(GptConfig const& config);

  [[nodiscard]] std::vector<Tensor> const& tensors() const noexcept { return tensors_; }
  [[nodiscard]] std::vector<Unit> const& units() const noexcept { return units_; }
  [[nodiscard]] std::size_t count() const noexcept;  ///< elements of all tensors
  /// The same without making the list, for any sizes.
  [[nodiscard]] static double count_of(GptConfig const& config) noexcept;
  [[nodiscard]] std::size_t largest_unit() const noexcept;  ///< elements

  /// Tensor `index`'s starting values, GPT-2's: normal with deviation 0.02, residual projections smaller by
  /// √(2·layers), norms 1, biases 0. Depend on seed and index only.
  void initialise(std::size_t index, std::uint64_t seed, std::span<float> values) const;

 private:
  void begin_unit(std::string name);
  void add(std::string const& name, std::initializer_list<int> shape);

  int layers_;
  std::vector<Tensor> tensors_;
  std::vector<Unit> units_;
};

}  // namespace train_gpt
