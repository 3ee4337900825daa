#pragma once

#include <cstddef>

#include <weft/buffer.hpp>

#include "tensors.hpp"

namespace train_gpt {

/// Tensors on a GPU, of the type that is trained. What is said of Tensors holds in the order of the model's stream;
/// nobody waits.
class DeviceTensors : public TensorUse {
 public:
  [[nodiscard]] virtual weft::BufferView parameter(std::size_t index) = 0;
  [[nodiscard]] virtual weft::BufferView gradient(std::size_t index) = 0;
};

}  // namespace train_gpt
