#pragma once

#include <cstddef>

#include <weft/buffer.hpp>

#include "tensors.hpp"

namespace train_gpt {

/// Tensors on a GPU: where parameters and gradients are, of the type that is trained. What tensors.hpp says of Tensors
/// holds in the order of the model's stream; nobody waits.
class DeviceTensors {
 public:
  virtual ~DeviceTensors() = default;

  virtual void enter(Pass pass, std::size_t unit) {
    static_cast<void>(pass);
    static_cast<void>(unit);
  }
  virtual void leave(Pass pass, std::size_t unit) {
    static_cast<void>(pass);
    static_cast<void>(unit);
  }
  [[nodiscard]] virtual weft::BufferView parameter(std::size_t index) = 0;
  [[nodiscard]] virtual weft::BufferView gradient(std::size_t index) = 0;
  virtual void gradient_done(std::size_t index) = 0;
  [[nodiscard]] virtual float keep() const { return 0.0F; }
};

}  // namespace train_gpt
