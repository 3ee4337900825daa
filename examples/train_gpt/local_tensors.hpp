#pragma once

#include <cstdint>
#include <vector>

#include <weft/buffer.hpp>

#include "gpt_parameters.hpp"
#include "tensors.hpp"

namespace train_gpt {

/// All parameters and gradients in this rank's private memory.
class LocalTensors final : public Tensors {
 public:
  /// Parameters have their starting values, gradients are not yet there: see add_gradients().
  LocalTensors(GptParameters const& parameters, std::uint64_t seed);

  void add_gradients();

  [[nodiscard]] float const* parameter(std::size_t index) override {
    return static_cast<float const*>(parameters_[index].data);
  }
  [[nodiscard]] float* gradient(std::size_t index) override { return gradients_[index].as<float>().data(); }
  void gradient_done(std::size_t) override {}

  [[nodiscard]] std::vector<weft::BufferView> const& parameters() const noexcept { return parameters_; }
  /// The parameters, rounded to `type` (f32, bf16, f16); none are left here.
  [[nodiscard]] std::vector<weft::Buffer> take(weft::DataType type) &&;

 private:
  std::vector<weft::Buffer> memory_;
  std::vector<weft::BufferView> parameters_;
  std::vector<weft::Buffer> gradients_;
};

[[nodiscard]] std::vector<weft::BufferView> views_of(std::vector<weft::Buffer> const& buffers);

}  // namespace train_gpt
