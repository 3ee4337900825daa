#pragma once

#include <cstddef>

namespace train_gpt {

enum class Pass { forward, backward };

/// Where a model's parameters and gradients are, in f32, and who is told what the model does next. Units and tensors
/// are GptParameters'.
class Tensors {
 public:
  virtual ~Tensors() = default;

  /// From now on `pass` uses unit `unit` / no more. One unit at a time; each is entered once a pass.
  virtual void enter(Pass pass, std::size_t unit) {
    static_cast<void>(pass);
    static_cast<void>(unit);
  }
  virtual void leave(Pass pass, std::size_t unit) {
    static_cast<void>(pass);
    static_cast<void>(unit);
  }

  /// Tensor `index`, of the unit that was entered. Asked for each time before it is read; valid until the unit is left.
  [[nodiscard]] virtual float const* parameter(std::size_t index) = 0;

  /// Where backward puts tensor `index`'s gradient: keep()·old + new; gradient_done() follows, once a pass.
  [[nodiscard]] virtual float* gradient(std::size_t index) = 0;
  virtual void gradient_done(std::size_t index) = 0;
  /// 0: the first pass of a step; 1: gradients add up over several.
  [[nodiscard]] virtual float keep() const { return 0.0F; }
};

}  // namespace train_gpt
