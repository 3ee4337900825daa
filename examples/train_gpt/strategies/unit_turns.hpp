#pragma once

#include <cstddef>

#include <weft/fully_sharded.hpp>

#include "tensors.hpp"

namespace train_gpt {

/// Has each of a model's units here for as long as a pass uses it.
class UnitTurns {
 public:
  explicit UnitTurns(weft::FullySharded& sharded) : sharded_(sharded) {}

  void enter(Pass pass, std::size_t unit) {
    if (pass == Pass::forward) {
      sharded_.before_forward(unit);
    } else {
      sharded_.before_backward(unit);
    }
    adds_ = sharded_.holds_gradients(unit);
  }
  void leave(Pass pass, std::size_t unit) {
    if (pass == Pass::forward) {
      sharded_.after_forward(unit);
    } else {
      sharded_.after_backward(unit);
    }
  }
  /// The unit that was entered has gradients of earlier passes.
  [[nodiscard]] bool adds() const noexcept { return adds_; }

 private:
  weft::FullySharded& sharded_;
  bool adds_ = false;
};

}  // namespace train_gpt
