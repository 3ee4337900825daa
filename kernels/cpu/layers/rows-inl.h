// Vectors of a matrix's row, the last one partly filled; included once per SIMD target.
#if defined(WEFT_KERNELS_CPU_LAYERS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_LAYERS_ROWS_INL_H_
#undef WEFT_KERNELS_CPU_LAYERS_ROWS_INL_H_
#else
#define WEFT_KERNELS_CPU_LAYERS_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/layers/layers.hpp"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

using VF = hn::Vec<DF>;
using Floats = Plain<float>;

/// A vector of elements.
struct Whole {
  template <typename Type>
  static HWY_INLINE VF load(typename Type::Stored const* from) {
    return Type::load(from);
  }
  template <typename Type>
  static HWY_INLINE void store(VF value, typename Type::Stored* to) {
    Type::store(value, to);
  }
  static HWY_INLINE VF only(VF value) { return value; }
};

/// The row's last few elements; memory behind them is neither read nor written.
struct Part {
  std::size_t count;

  template <typename Type>
  HWY_INLINE VF load(typename Type::Stored const* from) const {
    HWY_ALIGN typename Type::Stored copy[hn::MaxLanes(DF())] = {};
    std::memcpy(copy, from, count * sizeof(*from));
    return Type::load(copy);
  }
  template <typename Type>
  HWY_INLINE void store(VF value, typename Type::Stored* to) const {
    HWY_ALIGN typename Type::Stored copy[hn::MaxLanes(DF())];
    Type::store(value, copy);
    std::memcpy(to, copy, count * sizeof(*to));
  }
  /// `value` with zeros in the lanes that are not part of the row.
  HWY_INLINE VF only(VF value) const { return hn::IfThenElseZero(hn::FirstN(DF(), count), value); }
};

/// Calls f(first element, Whole or Part) for every vector of a row.
template <typename F>
HWY_INLINE void each_vector(std::size_t width, F&& f) {
  auto const n = hn::Lanes(DF());
  std::size_t i = 0;
  for (; i + n <= width; i += n) f(i, Whole());
  if (i < width) f(i, Part{width - i});
}

HWY_INLINE float sum_of(VF value) {
  return hn::GetLane(hn::SumOfLanes(DF(), value));
}

/// Two sums over a row: f(first element, Whole or Part, one, other) adds to both. Vectors alternate between four
/// accumulators of each, because an addition waits for the previous one.
struct TwoSums {
  float one, other;
};
template <typename F>
HWY_INLINE TwoSums sum_both(std::size_t width, F&& f) {
  DF const d;
  auto const n = hn::Lanes(d);
  VF a0 = hn::Zero(d), a1 = hn::Zero(d), a2 = hn::Zero(d), a3 = hn::Zero(d);
  VF b0 = hn::Zero(d), b1 = hn::Zero(d), b2 = hn::Zero(d), b3 = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 4 * n <= width; i += 4 * n) {
    f(i, Whole(), a0, b0);
    f(i + n, Whole(), a1, b1);
    f(i + 2 * n, Whole(), a2, b2);
    f(i + 3 * n, Whole(), a3, b3);
  }
  for (; i + n <= width; i += n) f(i, Whole(), a0, b0);
  if (i < width) f(i, Part{width - i}, a1, b1);
  return {sum_of(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3))), sum_of(hn::Add(hn::Add(b0, b1), hn::Add(b2, b3)))};
}
/// One sum over a row: f(first element, Whole or Part, sum).
template <typename F>
HWY_INLINE float sum_over(std::size_t width, F&& f) {
  return sum_both(width, [&](std::size_t i, auto part, VF& sum, VF& /*none*/) { f(i, part, sum); }).one;
}

/// Calls body(element type): Plain<float>, or the Narrow type of bf16 or f16.
template <typename Body>
void with_type(DataType type, Body&& body) {
  switch (type) {
    case DataType::bf16: return body(Narrow<BFloat16Codec>());
    case DataType::f16: return body(Narrow<HalfCodec>());
    default: return body(Floats());
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
