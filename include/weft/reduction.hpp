#pragma once

#include <cstddef>
#include <string_view>

#include "weft/reduce_op.hpp"

namespace weft {

/// A reduction of the caller's own, over elements of any bytes.
struct UserFunction {
  /// accumulator[i] = accumulator[i] op next[i], for i in [0, count) elements. Associative; need not be commutative:
  /// `next` is always of a later rank. Called several times a reduction, over parts of the buffers, by any rank and
  /// from whichever thread runs the collective; must not throw or communicate. The arrays do not overlap and
  /// begin at multiples of 64 bytes, wherever the callers' buffers lie.
  using Combine = void (*)(void* accumulator, void const* next, std::size_t count, void* context);

  Combine combine = nullptr;
  void* context = nullptr;        ///< handed to combine(); must live until the collective has completed
  std::size_t element_bytes = 0;  ///< what combine() calls an element, never split; 0: the data type's size
};

/// How a collective combines contributions: an operator, with what some operators need beside their name.
class Reduction {
 public:
  static constexpr std::size_t kMaxElementBytes = 256;

  /// Any operator but ReduceOp::user. ReduceOp::premul_sum by itself scales by 1.
  constexpr Reduction(ReduceOp op) noexcept : op_(op) {}  // NOLINT(google-explicit-constructor): an operator is one

  /// recv[i] = sum over r of scale_r · send_r[i]: each rank gives the scale of its own contribution. The scale is
  /// rounded to the accumulating type (f32 for 8-bit and 16-bit floats, which round once, after the sum), products and
  /// sums each round in it. Integers take integral scales that fit their type and wrap; complex numbers are scaled part
  /// by part.
  [[nodiscard]] static constexpr Reduction premul_sum(double scale) noexcept {
    Reduction reduction(ReduceOp::premul_sum);
    reduction.scale_ = scale;
    return reduction;
  }

  /// Calls `function` for every pair of neighbouring ranks' contributions, in rank order. Every rank passes a function
  /// of the same meaning and equal `element_bytes` and `name`, or all throw Error{mismatch} (fingerprints are compared,
  /// of 8 bits). `element_bytes`, at most kMaxElementBytes, divides the bytes of every buffer and part; with more than
  /// the data type's size it makes elements of several of the buffer's, such as a value and its index.
  [[nodiscard]] static constexpr Reduction user(UserFunction::Combine function, void* context = nullptr,
                                                std::size_t element_bytes = 0,
                                                std::string_view name = "user") noexcept {
    Reduction reduction(ReduceOp::user);
    reduction.function_ = {function, context, element_bytes};
    reduction.name_ = name;
    return reduction;
  }

  [[nodiscard]] constexpr ReduceOp op() const noexcept { return op_; }
  [[nodiscard]] constexpr double scale() const noexcept { return scale_; }
  [[nodiscard]] constexpr UserFunction const& function() const noexcept { return function_; }
  /// A user reduction's name, valid as long as what user() was given; empty for the others.
  [[nodiscard]] constexpr std::string_view name() const noexcept { return name_; }

 private:
  ReduceOp op_;
  double scale_ = 1;
  UserFunction function_{};
  std::string_view name_{};
};

}  // namespace weft
