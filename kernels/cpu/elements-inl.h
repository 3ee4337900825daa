// How the element types are loaded into, combined in and stored from vectors; included once per SIMD target by
// reduce.cpp.
#if defined(WEFT_KERNELS_CPU_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_ELEMENTS_INL_H_
#undef WEFT_KERNELS_CPU_ELEMENTS_INL_H_
#else
#define WEFT_KERNELS_CPU_ELEMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Not Highway's Ne(v, v): that is false for NaN on AVX-512 in some releases.
template <typename V>
HWY_INLINE auto is_nan_mask(V value) {
  return hn::Not(hn::Eq(value, value));
}

/// Types that are computed in as they are stored.
template <typename T>
struct Plain {
  using Stored = T;
  using Lane = T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  static HWY_INLINE V load(T const* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE void store(V value, T* to) { hn::StoreU(value, D(), to); }
  static HWY_INLINE void stream(V value, T* to) { hn::Stream(value, D(), to); }
};

/// 16-bit floats: computed in f32, stored as the nearest value, ties to even.
template <typename Codec>
struct Narrow {
  using Stored = std::uint16_t;
  using Lane = float;
  using D = hn::ScalableTag<float>;
  using D16 = hn::Rebind<std::uint16_t, D>;
  using V = hn::Vec<D>;

  static HWY_INLINE V load(std::uint16_t const* from) { return Codec::widen(hn::LoadU(D16(), from)); }
  static HWY_INLINE void store(V value, std::uint16_t* to) { hn::StoreU(Codec::narrow(value), D16(), to); }
  static HWY_INLINE void stream(V value, std::uint16_t* to) { hn::Stream(Codec::narrow(value), D16(), to); }
};

using DF = hn::ScalableTag<float>;
using DU32 = hn::Rebind<std::uint32_t, DF>;
using DI32 = hn::Rebind<std::int32_t, DF>;
using DU16 = hn::Rebind<std::uint16_t, DF>;

/// The low halves of 32-bit lanes that are below 65536.
HWY_INLINE hn::Vec<DU16> low_halves(hn::Vec<DU32> bits) {
  return hn::DemoteTo(DU16(), hn::BitCast(DI32(), bits));
}

struct BFloat16Codec {
  static HWY_INLINE hn::Vec<DF> widen(hn::Vec<DU16> half) {
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU32(), half)));
  }

  // Adding just under half of the last kept bit carries into it exactly when rounding up is due; a NaN must not be
  // carried into infinity, so it is truncated and made quiet instead.
  static HWY_INLINE hn::Vec<DU16> narrow(hn::Vec<DF> value) {
    DU32 const d;
    auto const bits = hn::BitCast(d, value);
    auto const high = hn::ShiftRight<16>(bits);
    auto const odd = hn::And(high, hn::Set(d, 1U));
    auto const rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFU))));
    auto const quiet = hn::Or(high, hn::Set(d, 0x40U));
    auto const is_nan = hn::RebindMask(d, is_nan_mask(value));
    return low_halves(hn::IfThenElse(is_nan, quiet, rounded));
  }
};

// Targets whose Highway conversions are one instruction that rounds to nearest even and knows subnormals, infinities
// and NaN.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
struct HalfCodec {
  using DH = hn::Rebind<hwy::float16_t, DF>;
  static HWY_INLINE hn::Vec<DF> widen(hn::Vec<DU16> half) { return hn::PromoteTo(DF(), hn::BitCast(DH(), half)); }
  static HWY_INLINE hn::Vec<DU16> narrow(hn::Vec<DF> value) { return hn::BitCast(DU16(), hn::DemoteTo(DH(), value)); }
};
#else
struct HalfCodec {
  // Shifts the bits into place and corrects the exponent's bias; subnormals are normalised by a subtraction that is
  // exact.
  static HWY_INLINE hn::Vec<DF> widen(hn::Vec<DU16> half) {
    DU32 const d;
    auto const wide = hn::PromoteTo(d, half);
    auto const shifted = hn::ShiftLeft<13>(hn::And(wide, hn::Set(d, 0x7FFFU)));
    auto const exponent = hn::And(shifted, hn::Set(d, 0x0F800000U));
    auto const normal = hn::Add(shifted, hn::Set(d, (127U - 15U) << 23));
    auto const special = hn::Add(normal, hn::Set(d, (128U - 16U) << 23));
    auto const quiet = hn::Or(special, hn::Set(d, 0x00400000U));
    auto const lifted = hn::BitCast(DF(), hn::Add(normal, hn::Set(d, 1U << 23)));
    auto const subnormal = hn::BitCast(d, hn::Sub(lifted, hn::BitCast(DF(), hn::Set(d, 113U << 23))));
    auto const is_special = hn::Eq(exponent, hn::Set(d, 0x0F800000U));
    auto const has_fraction = hn::Ne(hn::And(shifted, hn::Set(d, 0x007FE000U)), hn::Zero(d));
    auto const is_subnormal = hn::Eq(exponent, hn::Zero(d));
    auto bits = hn::IfThenElse(is_subnormal, subnormal, normal);
    bits = hn::IfThenElse(is_special, hn::IfThenElse(has_fraction, quiet, special), bits);
    return hn::BitCast(DF(), hn::Or(bits, hn::ShiftLeft<16>(hn::And(wide, hn::Set(d, 0x8000U)))));
  }

  // Small results are rounded by a float addition whose last place is the subnormals' spacing; others as for bfloat16.
  static HWY_INLINE hn::Vec<DU16> narrow(hn::Vec<DF> value) {
    DU32 const d;
    auto const bits = hn::BitCast(d, value);
    auto const sign = hn::And(bits, hn::Set(d, 0x80000000U));
    auto const magnitude = hn::Xor(bits, sign);
    auto const as_signed = hn::BitCast(DI32(), magnitude);
    auto const odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1U));
    auto const rebiased = hn::Add(magnitude, hn::Add(odd, hn::Set(d, ((15U - 127U) << 23) + 0xFFFU)));
    auto const normal = hn::ShiftRight<13>(rebiased);
    auto const magic = hn::Set(d, ((127U - 15U) + (23U - 10U) + 1U) << 23);
    auto const sum = hn::Add(hn::BitCast(DF(), magnitude), hn::BitCast(DF(), magic));
    auto const subnormal = hn::Sub(hn::BitCast(d, sum), magic);
    auto const payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 0x3FFU));
    auto const quiet = hn::Or(payload, hn::Set(d, 0x7E00U));
    auto const is_small = hn::RebindMask(d, hn::Lt(as_signed, hn::Set(DI32(), 113 << 23)));
    auto const is_large = hn::RebindMask(d, hn::Ge(as_signed, hn::Set(DI32(), (127 + 16) << 23)));
    auto const is_nan = hn::RebindMask(d, is_nan_mask(value));
    auto half = hn::IfThenElse(is_small, subnormal, normal);
    half = hn::IfThenElse(is_large, hn::Set(d, 0x7C00U), half);
    half = hn::IfThenElse(is_nan, quiet, half);
    return low_halves(hn::Or(half, hn::ShiftRight<16>(sign)));
  }
};
#endif

/// Applies `operation(a, b)` lane by lane, for what the vector unit lacks.
template <typename D, typename V, typename Operation>
HWY_INLINE V lane_by_lane(D d, V a, V b, Operation operation) {
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

// An operation: combine() folds the next source into the accumulator, finish() turns it into the result for `sources`
// sources.

template <typename D>
struct Keep {
  explicit Keep(std::size_t /*sources*/) {}
  template <typename V>
  HWY_INLINE V finish(V value) const {
    return value;
  }
};

template <typename D>
struct Sum : Keep<D> {
  using Keep<D>::Keep;
  template <typename V>
  HWY_INLINE V combine(V a, V b) const {
    return hn::Add(a, b);
  }
};

template <typename D>
struct Product : Keep<D> {
  using Keep<D>::Keep;
  template <typename V>
  HWY_INLINE V combine(V a, V b) const {
    using T = hn::TFromD<D>;
    if constexpr (std::is_integral_v<T> && sizeof(T) != 4) {
      return lane_by_lane(D(), a, b, WrappingProduct{});
    } else {
      return hn::Mul(a, b);
    }
  }
};

/// The earlier source wins ties; of floats a NaN wins over everything.
template <typename D, bool kLess>
struct Extremum : Keep<D> {
  using Keep<D>::Keep;
  template <typename V>
  HWY_INLINE V combine(V a, V b) const {
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
  explicit Average(std::size_t sources)
      : Sum<D>(sources), divisor(static_cast<T>(sources)), exact_reciprocal((sources & (sources - 1)) == 0) {}
  template <typename V>
  HWY_INLINE V finish(V value) const {
    if constexpr (std::is_integral_v<T>) {
      return lane_by_lane(D(), value, hn::Set(D(), divisor), TruncatedQuotient{});
    } else {
      if (exact_reciprocal) return hn::Mul(value, hn::Set(D(), T{1} / divisor));
      return hn::Div(value, hn::Set(D(), divisor));
    }
  }
  T divisor;
  bool exact_reciprocal;
};

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
