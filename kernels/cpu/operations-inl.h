// How vectors combine; included once per SIMD target.
//
// An operation has three parts: begin() takes the first source's values, combine() folds source number `r` into them,
// and finish() turns them into the result.
#if defined(WEFT_KERNELS_CPU_OPERATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_OPERATIONS_INL_H_
#undef WEFT_KERNELS_CPU_OPERATIONS_INL_H_
#else
#define WEFT_KERNELS_CPU_OPERATIONS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/reduce_task.hpp"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

/// Applies `operation(a, b)` lane by lane, for operations that the vector unit lacks. Not inlined, because it is
/// unrolled over all lanes.
template <typename D, typename V, typename Operation>
HWY_NOINLINE V lane_by_lane(D d, V a, V b, Operation operation) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T left[hn::MaxLanes(D())];
  HWY_ALIGN T right[hn::MaxLanes(D())];
  hn::Store(a, d, left);
  hn::Store(b, d, right);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) left[i] = operation(left[i], right[i]);
  return hn::Load(d, left);
}

struct WrappingProduct {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  }
};

struct TruncatedQuotient {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a / b);
  }
};

/// The same by a divisor that T cannot represent.
struct QuotientByMany {
  std::int64_t divisor;
  template <typename T>
  T operator()(T a, T /*b*/) const {
    return static_cast<T>(static_cast<std::int64_t>(a) / divisor);
  }
};

template <typename D, typename V>
HWY_INLINE V multiply(D d, V a, V b) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_integral_v<T> && (sizeof(T) == 1 || sizeof(T) == 8)) {
    return lane_by_lane(d, a, b, WrappingProduct{});
  } else {
    return hn::Mul(a, b);
  }
}

template <typename D>
struct Keep {
  explicit Keep(ReduceTask const& /*task*/) {}
  template <typename V>
  HWY_INLINE V begin(V value) const {
    return value;
  }
  template <typename V>
  HWY_INLINE V finish(V value) const {
    return value;
  }
};

template <typename D>
struct Sum : Keep<D> {
  using Keep<D>::Keep;
  template <typename V>
  HWY_INLINE V combine(V a, V b, std::size_t /*r*/) const {
    return hn::Add(a, b);
  }
};

template <typename D>
struct Product : Keep<D> {
  using Keep<D>::Keep;
  template <typename V>
  HWY_INLINE V combine(V a, V b, std::size_t /*r*/) const {
    return multiply(D(), a, b);
  }
};

/// In ties the earlier source wins; for floats, NaN wins over everything.
template <typename D, bool kLess>
struct Extremum : Keep<D> {
  using Keep<D>::Keep;
  template <typename V>
  HWY_INLINE V combine(V a, V b, std::size_t /*r*/) const {
    if constexpr (std::is_integral_v<hn::TFromD<D>>) {
      return kLess ? hn::Min(a, b) : hn::Max(a, b);
    } else {
      auto const better = kLess ? hn::Lt(b, a) : hn::Gt(b, a);
      return hn::IfThenElse(hn::Or(better, is_nan_mask(b)), b, a);
    }
  }
};

template <typename D>
struct Min : Extremum<D, true> {
  using Extremum<D, true>::Extremum;
};
template <typename D>
struct Max : Extremum<D, false> {
  using Extremum<D, false>::Extremum;
};

/// The sum divided by the number of sources, rounded once more. For powers of two the product with the reciprocal has
/// the same bits.
template <typename D>
struct Average : Sum<D> {
  using T = hn::TFromD<D>;
  explicit Average(ReduceTask const& task)
      : Sum<D>(task),
        sources(task.srcs.size()),
        divisor(static_cast<T>(sources)),
        exact_reciprocal((sources & (sources - 1)) == 0) {}
  template <typename V>
  HWY_INLINE V finish(V value) const {
    if constexpr (sizeof(T) == 1) {
      if (sources > static_cast<std::size_t>(std::numeric_limits<T>::max())) {
        return lane_by_lane(D(), value, value, QuotientByMany{static_cast<std::int64_t>(sources)});
      }
    }
    if constexpr (std::is_integral_v<T>) {
      return lane_by_lane(D(), value, hn::Set(D(), divisor), TruncatedQuotient{});
    } else {
      if (exact_reciprocal) return hn::Mul(value, hn::Set(D(), T{1} / divisor));
      return hn::Div(value, hn::Set(D(), divisor));
    }
  }
  std::size_t sources;
  T divisor;
  bool exact_reciprocal;
};

/// The sum of products with each source's scale. Integer lanes are unsigned: a negative scale wraps, as products do.
template <typename D>
struct ScaledSum : Keep<D> {
  using T = hn::TFromD<D>;
  explicit ScaledSum(ReduceTask const& task)
      : Keep<D>(task),
        many(task.srcs.size() > kFewSources ? task.srcs.size() : 0),
        scales(many.empty() ? few : many.data()) {
    for (std::size_t r = 0; r < task.srcs.size(); ++r) scales[r] = to_lane(task.how.scales[r]);
  }
  ScaledSum(ScaledSum const&) = delete;
  ScaledSum& operator=(ScaledSum const&) = delete;
  static T to_lane(double scale) {
    if constexpr (std::is_integral_v<T>) {
      return scale < 0 ? static_cast<T>(static_cast<std::int64_t>(scale))
                       : static_cast<T>(static_cast<std::uint64_t>(scale));
    } else {
      return static_cast<T>(scale);
    }
  }
  template <typename V>
  HWY_INLINE V scaled(V value, std::size_t r) const {
    return multiply(D(), value, hn::Set(D(), scales[r]));
  }
  template <typename V>
  HWY_INLINE V begin(V value) const {
    return scaled(value, 0);
  }
  template <typename V>
  HWY_INLINE V combine(V a, V b, std::size_t r) const {
    return hn::Add(a, scaled(b, r));
  }
  T few[kFewSources];
  std::vector<T> many;
  T* scales;
};

/// 1 where a value differs from 0, else 0. NaN differs from 0.
template <typename D, typename V>
HWY_INLINE V truth(D d, V value) {
  return hn::IfThenElse(hn::Eq(value, hn::Zero(d)), hn::Zero(d), hn::Set(d, hn::TFromD<D>{1}));
}

/// Truth values combined by Bits, an operation on 0 and 1.
template <typename D, template <typename> typename Bits>
struct Logical : Keep<D> {
  using Keep<D>::Keep;
  template <typename V>
  HWY_INLINE V begin(V value) const {
    return truth(D(), value);
  }
  template <typename V>
  HWY_INLINE V combine(V a, V b, std::size_t /*r*/) const {
    return Bits<D>::apply(a, truth(D(), b));
  }
};

template <typename D>
struct BitAnd : Keep<D> {
  using Keep<D>::Keep;
  template <typename V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::And(a, b);
  }
  template <typename V>
  HWY_INLINE V combine(V a, V b, std::size_t /*r*/) const {
    return apply(a, b);
  }
};

template <typename D>
struct BitOr : Keep<D> {
  using Keep<D>::Keep;
  template <typename V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Or(a, b);
  }
  template <typename V>
  HWY_INLINE V combine(V a, V b, std::size_t /*r*/) const {
    return apply(a, b);
  }
};

template <typename D>
struct BitXor : Keep<D> {
  using Keep<D>::Keep;
  template <typename V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Xor(a, b);
  }
  template <typename V>
  HWY_INLINE V combine(V a, V b, std::size_t /*r*/) const {
    return apply(a, b);
  }
};

template <typename D>
struct LogicalAnd : Logical<D, BitAnd> {
  using Logical<D, BitAnd>::Logical;
};
template <typename D>
struct LogicalOr : Logical<D, BitOr> {
  using Logical<D, BitOr>::Logical;
};
template <typename D>
struct LogicalXor : Logical<D, BitXor> {
  using Logical<D, BitXor>::Logical;
};

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
