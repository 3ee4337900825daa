// How the element types are loaded into and stored from vectors; included once per SIMD target.
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

/// Types whose arithmetic is done in the type they are stored in.
template <typename T>
struct Plain {
  using Stored = T;
  using Lane = T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  static HWY_INLINE V load(T const* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE void store(V value, T* to) { hn::StoreU(value, D(), to); }
  static HWY_INLINE void stream(V value, T* to) { hn::Stream(value, D(), to); }

  /// Whether load_some() reads no memory beyond the lanes it loads.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  static constexpr bool kLoadsSome = sizeof(T) >= 4;
#else
  static constexpr bool kLoadsSome = false;
#endif
  /// The first `count` lanes, the others zero.
  static HWY_INLINE V load_some(T const* from, std::size_t count) {
    return hn::MaskedLoad(hn::FirstN(D(), count), D(), from);
  }
};

using DF = hn::ScalableTag<float>;
using DU32 = hn::Rebind<std::uint32_t, DF>;
using DI32 = hn::Rebind<std::int32_t, DF>;

/// 8-bit and 16-bit floats: computed in f32, stored as the nearest value, ties to even.
template <typename Codec>
struct Narrow {
  using Stored = typename Codec::Bits;
  using Lane = float;
  using D = DF;
  using V = hn::Vec<D>;
  using DStored = hn::Rebind<Stored, D>;

  static HWY_INLINE V load(Stored const* from) { return Codec::widen(hn::LoadU(DStored(), from)); }
  static HWY_INLINE void store(V value, Stored* to) { hn::StoreU(Codec::narrow(value), DStored(), to); }
  static HWY_INLINE void stream(V value, Stored* to) { hn::Stream(Codec::narrow(value), DStored(), to); }
};

using DU16 = hn::Rebind<std::uint16_t, DF>;
using DU8 = hn::Rebind<std::uint8_t, DF>;

/// The low halves of 32-bit lanes that are below 65536.
HWY_INLINE hn::Vec<DU16> low_halves(hn::Vec<DU32> bits) {
  return hn::DemoteTo(DU16(), hn::BitCast(DI32(), bits));
}

/// Floats with a sign, kExponentBits and kFractionBits, in the low bits of 32-bit lanes, by integer arithmetic. Without
/// infinity, the largest exponent is an ordinary one, and all ones is NaN.
template <unsigned kExponentBits, unsigned kFractionBits, bool kHasInfinity>
struct SmallFloat {
  static constexpr unsigned kBias = (1U << (kExponentBits - 1)) - 1;
  static constexpr int kDropped = 23 - static_cast<int>(kFractionBits);
  static constexpr int kAboveSign = 31 - static_cast<int>(kExponentBits + kFractionBits);
  static constexpr std::uint32_t kSign = 1U << (kExponentBits + kFractionBits);
  static constexpr std::uint32_t kExponent = ((1U << kExponentBits) - 1) << 23;
  static constexpr std::uint32_t kRebias = (127U - kBias) << 23;
  /// What overflows become in this format; kOverflow is the same as the bits of an f32.
  static constexpr std::uint32_t kBeyond = kHasInfinity ? kSign - (1U << kFractionBits) : kSign - 1;
  static constexpr std::uint32_t kOverflow = (kBeyond << kDropped) + kRebias;
  static constexpr std::uint32_t kNaN = kBeyond | (1U << (kFractionBits - 1));

  // Shifts the bits into place and corrects the exponent's bias; subnormals are normalised by a subtraction that is
  // exact.
  static HWY_INLINE hn::Vec<DF> widen(hn::Vec<DU32> wide) {
    DU32 const d;
    auto const magnitude = hn::And(wide, hn::Set(d, kSign - 1));
    auto const shifted = hn::ShiftLeft<kDropped>(magnitude);
    auto const exponent = hn::And(shifted, hn::Set(d, kExponent));
    auto const normal = hn::Add(shifted, hn::Set(d, kRebias));
    auto const lifted = hn::BitCast(DF(), hn::Add(normal, hn::Set(d, 1U << 23)));
    auto const subnormal = hn::BitCast(d, hn::Sub(lifted, hn::BitCast(DF(), hn::Set(d, kRebias + (1U << 23)))));
    auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(d)), subnormal, normal);
    if constexpr (kHasInfinity) {
      auto const special = hn::Add(normal, hn::Set(d, 0x7F800000U - kRebias - kExponent));
      auto const quiet = hn::Or(special, hn::Set(d, 0x00400000U));
      auto const fraction = hn::And(shifted, hn::Set(d, 0x007FFFFFU));
      auto const is_infinity = hn::Eq(fraction, hn::Zero(d));
      bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(d, kExponent)), hn::IfThenElse(is_infinity, special, quiet), bits);
    } else {
      bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, kNaN)), hn::Set(d, 0x7FC00000U), bits);
    }
    return hn::BitCast(DF(), hn::Or(bits, hn::ShiftLeft<kAboveSign>(hn::And(wide, hn::Set(d, kSign)))));
  }

  // Adding just under half of the last kept bit carries into it exactly when rounding up is due. Small results are
  // rounded by a float addition whose last place is the subnormals' spacing.
  static HWY_INLINE hn::Vec<DU32> narrow(hn::Vec<DF> value) {
    DU32 const d;
    auto const bits = hn::BitCast(d, value);
    auto const sign = hn::And(bits, hn::Set(d, 0x80000000U));
    auto const magnitude = hn::Xor(bits, sign);
    auto const as_signed = hn::BitCast(DI32(), magnitude);
    auto const odd = hn::And(hn::ShiftRight<kDropped>(magnitude), hn::Set(d, 1U));
    auto const half_up = hn::Add(odd, hn::Set(d, (1U << (kDropped - 1)) - 1U - kRebias));
    auto const normal = hn::ShiftRight<kDropped>(hn::Add(magnitude, half_up));
    auto const magic = hn::Set(d, kRebias + ((24U - kFractionBits) << 23));
    auto const sum = hn::Add(hn::BitCast(DF(), magnitude), hn::BitCast(DF(), magic));
    auto const subnormal = hn::Sub(hn::BitCast(d, sum), magic);
    auto const smallest_normal = hn::Set(DI32(), static_cast<std::int32_t>(kRebias + (1U << 23)));
    auto const is_small = hn::RebindMask(d, hn::Lt(as_signed, smallest_normal));
    auto const largest = hn::Set(DI32(), static_cast<std::int32_t>(kOverflow - 1));
    auto const is_large = hn::RebindMask(d, hn::Gt(as_signed, largest));
    auto const is_nan = hn::RebindMask(d, is_nan_mask(value));
    auto small_float = hn::IfThenElse(is_small, subnormal, normal);
    small_float = hn::IfThenElse(is_large, hn::Set(d, kBeyond), small_float);
    small_float = hn::IfThenElse(is_nan, hn::Set(d, kNaN), small_float);
    return hn::Or(small_float, hn::ShiftRight<kAboveSign>(sign));
  }
};

/// 8-bit floats.
template <bool kHasInfinity, unsigned kExponentBits>
struct ByteCodec {
  using Bits = std::uint8_t;
  using Format = SmallFloat<kExponentBits, 7 - kExponentBits, kHasInfinity>;
  static HWY_INLINE hn::Vec<DF> widen(hn::Vec<DU8> bits) { return Format::widen(hn::PromoteTo(DU32(), bits)); }
  static HWY_INLINE hn::Vec<DU8> narrow(hn::Vec<DF> value) {
    return hn::DemoteTo(DU8(), hn::BitCast(DI32(), Format::narrow(value)));
  }
};
using Float8E4M3Codec = ByteCodec<false, 4>;
using Float8E5M2Codec = ByteCodec<true, 5>;

struct BFloat16Codec {
  using Bits = std::uint16_t;
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
  using Bits = std::uint16_t;
  using DH = hn::Rebind<hwy::float16_t, DF>;
  static HWY_INLINE hn::Vec<DF> widen(hn::Vec<DU16> half) { return hn::PromoteTo(DF(), hn::BitCast(DH(), half)); }
  static HWY_INLINE hn::Vec<DU16> narrow(hn::Vec<DF> value) { return hn::BitCast(DU16(), hn::DemoteTo(DH(), value)); }
};
#else
struct HalfCodec {
  using Bits = std::uint16_t;
  using Format = SmallFloat<5, 10, true>;
  static HWY_INLINE hn::Vec<DF> widen(hn::Vec<DU16> half) { return Format::widen(hn::PromoteTo(DU32(), half)); }
  static HWY_INLINE hn::Vec<DU16> narrow(hn::Vec<DF> value) { return low_halves(Format::narrow(value)); }
};
#endif

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
