// The loop around every optimizer's arithmetic: loads, widens, scales, stores; included once per SIMD target.
#if defined(WEFT_KERNELS_CPU_OPTIM_UPDATE_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_OPTIM_UPDATE_LOOP_INL_H_
#undef WEFT_KERNELS_CPU_OPTIM_UPDATE_LOOP_INL_H_
#else
#define WEFT_KERNELS_CPU_OPTIM_UPDATE_LOOP_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/optim/update.hpp"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

using VF = hn::Vec<DF>;
constexpr std::size_t kMaxStates = 3;
/// How many elements ahead loops prefetch, because hardware prefetchers stop at page ends.
constexpr std::size_t kAhead = 256;

/// Elements [i, i + a vector) of an array of f32, bf16 or f16.
struct Elements {
  std::byte* data;
  DataType type;

  HWY_INLINE VF load(std::size_t i) const {
    switch (type) {
      case DataType::bf16: return Narrow<BFloat16Codec>::load(halves() + i);
      case DataType::f16: return Narrow<HalfCodec>::load(halves() + i);
      default: return hn::LoadU(DF(), reinterpret_cast<float const*>(data) + i);
    }
  }
  HWY_INLINE void store(VF value, std::size_t i) const {
    switch (type) {
      case DataType::bf16: return Narrow<BFloat16Codec>::store(value, halves() + i);
      case DataType::f16: return Narrow<HalfCodec>::store(value, halves() + i);
      default: return hn::StoreU(value, DF(), reinterpret_cast<float*>(data) + i);
    }
  }
  HWY_INLINE void prefetch(std::size_t i) const { hwy::Prefetch(data + i * size_of(type)); }

 private:
  [[nodiscard]] HWY_INLINE std::uint16_t* halves() const { return reinterpret_cast<std::uint16_t*>(data); }
};

/// The arrays of an update.
struct Lanes {
  Elements computed;  ///< the master, or the parameter itself
  Elements rounded;   ///< the parameter, if there is a master; else null
  Elements gradient;
  float* state[kMaxStates];
};

inline Lanes lanes_of(UpdateArrays const& arrays) {
  Elements const parameter{static_cast<std::byte*>(arrays.parameter), arrays.parameter_type};
  auto* const master = reinterpret_cast<std::byte*>(arrays.master);
  return {master != nullptr ? Elements{master, DataType::f32} : parameter,
          {master != nullptr ? parameter.data : nullptr, parameter.type},
          {static_cast<std::byte*>(arrays.gradient), arrays.gradient_type},
          {arrays.state[0], arrays.state[1], arrays.state[2]}};
}

/// `value` clamped to [−most, most]; NaN stays.
HWY_INLINE VF clamp(VF value, VF most) {
  return hn::IfThenElse(is_nan_mask(value), value, hn::Max(hn::Min(value, most), hn::Neg(most)));
}

/// A GradientUse in vectors.
struct GradientVectors {
  VF factor;
  VF limit;
  bool clips;
  bool zero;

  explicit GradientVectors(GradientUse const& use)
      : factor(hn::Set(DF(), use.factor)),
        limit(hn::Set(DF(), use.limit)),
        clips(use.limit != GradientUse::kNoLimit),
        zero(use.zero) {}
  HWY_INLINE VF operator()(VF gradient) const {
    VF const scaled = hn::Mul(gradient, factor);
    return clips ? clamp(scaled, limit) : scaled;
  }
};

/// Updates one vector. A rule is called with the parameter, the gradient and its kStates states; it changes the states
/// and, if kWrites, returns the new parameter.
template <typename Rule>
HWY_INLINE void update_vector(Rule& rule, Lanes const& at, std::size_t i, GradientVectors const& use) {
  DF const d;
  VF const p = at.computed.load(i);
  VF g = hn::Zero(d);
  if constexpr (Rule::kReadsGradient) {
    g = use(at.gradient.load(i));
    if (use.zero) at.gradient.store(hn::Zero(d), i);
  }
  VF a = hn::Zero(d);
  VF b = hn::Zero(d);
  VF c = hn::Zero(d);
  if constexpr (Rule::kStates > 0) a = hn::LoadU(d, at.state[0] + i);
  if constexpr (Rule::kStates > 1) b = hn::LoadU(d, at.state[1] + i);
  if constexpr (Rule::kStates > 2) c = hn::LoadU(d, at.state[2] + i);
  VF const updated = rule(p, g, a, b, c);
  if constexpr (Rule::kWritesStates) {
    if constexpr (Rule::kStates > 0) hn::StoreU(a, d, at.state[0] + i);
    if constexpr (Rule::kStates > 1) hn::StoreU(b, d, at.state[1] + i);
    if constexpr (Rule::kStates > 2) hn::StoreU(c, d, at.state[2] + i);
  }
  if constexpr (Rule::kWrites) {
    at.computed.store(updated, i);
    if (at.rounded.data != nullptr) at.rounded.store(updated, i);
  }
}

/// Prefetches the lines that update_vector() will read and write.
template <typename Rule>
HWY_INLINE void prefetch_vector(Lanes const& at, std::size_t i) {
  at.computed.prefetch(i);
  if constexpr (Rule::kReadsGradient) at.gradient.prefetch(i);
  for (std::size_t k = 0; k < Rule::kStates; ++k) hwy::Prefetch(at.state[k] + i);
  if (Rule::kWrites && at.rounded.data != nullptr) at.rounded.prefetch(i);
}

/// Updates the last, partly filled vector: the same arithmetic on padded copies.
template <typename Rule>
void update_partial(Rule& rule, Lanes const& at, std::size_t first, std::size_t count, GradientVectors const& use) {
  constexpr std::size_t kBytes = hn::MaxLanes(DF()) * sizeof(float);
  HWY_ALIGN std::byte copies[3 + kMaxStates][kBytes] = {};
  auto const in = [&](Elements const& elements, std::byte* copy) {
    auto const size = size_of(elements.type);
    if (elements.data != nullptr) std::memcpy(copy, elements.data + first * size, count * size);
    return Elements{elements.data != nullptr ? copy : nullptr, elements.type};
  };
  auto const out = [&](Elements const& elements, std::byte const* copy) {
    auto const size = size_of(elements.type);
    if (elements.data != nullptr) std::memcpy(elements.data + first * size, copy, count * size);
  };
  auto const state = [&](std::size_t k) {
    return Elements{k < Rule::kStates ? reinterpret_cast<std::byte*>(at.state[k]) : nullptr, DataType::f32};
  };
  Lanes padded{in(at.computed, copies[0]), in(at.rounded, copies[1]), in(at.gradient, copies[2]), {}};
  for (std::size_t k = 0; k < kMaxStates; ++k)
    padded.state[k] = reinterpret_cast<float*>(in(state(k), copies[3 + k]).data);
  if constexpr (requires { rule.count_only(count); }) rule.count_only(count);
  update_vector(rule, padded, 0, use);
  if constexpr (Rule::kWrites) {
    out(at.computed, copies[0]);
    out(at.rounded, copies[1]);
  }
  if (Rule::kReadsGradient && use.zero) out(at.gradient, copies[2]);
  if constexpr (Rule::kWritesStates) {
    for (std::size_t k = 0; k < Rule::kStates; ++k) out(state(k), copies[3 + k]);
  }
}

template <typename Rule>
void update(Rule& rule, UpdateArrays const& arrays, std::size_t count, GradientUse const& how) {
  auto const at = lanes_of(arrays);
  auto const n = hn::Lanes(DF());
  GradientVectors const use(how);
  std::size_t i = 0;
  for (; i + 2 * n + kAhead <= count; i += 2 * n) {
    prefetch_vector<Rule>(at, i + kAhead);
    update_vector(rule, at, i, use);
    prefetch_vector<Rule>(at, i + n + kAhead);
    update_vector(rule, at, i + n, use);
  }
  for (; i + n <= count; i += n) update_vector(rule, at, i, use);
  if (i < count) update_partial(rule, at, i, count - i, use);
}

/// The base of rules that read the gradient and write the parameter and the states, as most do.
struct OrdinaryRule {
  static constexpr bool kReadsGradient = true;
  static constexpr bool kWrites = true;
  static constexpr bool kWritesStates = true;
};

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
