#pragma once

#include <cstddef>

namespace train_gpt {

enum class Pass { forward, backward };

/// Who is told what a model does next with its parameters and gradients, wherever they are. Units and tensors are
/// GptParameters'.
class TensorUse {
 public:
  virtual ~TensorUse() = default;

  /// From now on `pass` uses unit `unit` / no more. One unit at a time; each is entered once a pass.
  virtual void enter(Pass pass, std::size_t unit) {
    static_cast<void>(pass);
    static_cast<void>(unit);
  }
  virtual void leave(Pass pass, std::size_t unit) {
    static_cast<void>(pass);
    static_cast<void>(unit);
  }

  /// Follows once a pass, when backward has put tensor `index`'s gradient where it belongs: keep()·old + new.
  virtual void gradient_done(std::size_t index) = 0;
  /// 0: the first pass of a step; 1: gradients add up over several.
  [[nodiscard]] virtual float keep() const { return 0.0F; }
};

/// In host memory, in f32.
class Tensors : public TensorUse {
 public:
  /// Tensor `index`, of the unit that was entered. Asked for each time before it is read; valid until the unit is left.
  [[nodiscard]] virtual float const* parameter(std::size_t index) = 0;
  /// Where backward puts tensor `index`'s gradient.
  [[nodiscard]] virtual float* gradient(std::size_t index) = 0;
};

}  // namespace train_gpt
