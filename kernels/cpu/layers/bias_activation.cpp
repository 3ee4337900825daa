#include "kernels/cpu/layers/layers.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layers/bias_activation.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/layers/rows-inl.h"
#include "kernels/math/gelu.hpp"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

/// 1/(1 + exp(t)). Highway's exp() takes arguments up to 104; there f32 has already overflowed to infinity, as it
/// should.
HWY_INLINE VF gate_of(VF t) {
  DF const d;
  VF const within = hn::Max(hn::Min(t, hn::Set(d, 104.0F)), hn::Set(d, -104.0F));
  return hn::Div(hn::Set(d, 1.0F), hn::Add(hn::Set(d, 1.0F), hn::Exp(d, within)));
}

/// kernels::Gelu on a vector; only the last bits of exp() differ.
struct GeluVectors {
  static HWY_INLINE VF value(VF x) { return hn::Mul(x, gate(x)); }
  static HWY_INLINE VF slope(VF x) {
    DF const d;
    VF const one = hn::Set(d, 1.0F);
    VF const g = gate(x);
    VF const bump = hn::Mul(hn::Mul(hn::Set(d, 2 * Gelu::kRoot), hn::Mul(g, hn::Sub(one, g))), x);
    return hn::Add(g, hn::MulAdd(hn::Mul(hn::Mul(hn::Set(d, 3 * Gelu::kCubic), x), bump), x, bump));
  }

 private:
  static HWY_INLINE VF gate(VF x) {
    DF const d;
    VF const cubic = hn::Mul(hn::Mul(hn::Set(d, Gelu::kCubic), x), x);
    return gate_of(hn::Mul(hn::Set(d, -2 * Gelu::kRoot), hn::MulAdd(cubic, x, x)));
  }
};

/// kernels::QuickGelu, likewise.
struct QuickGeluVectors {
  static HWY_INLINE VF value(VF x) { return hn::Mul(x, gate(x)); }
  static HWY_INLINE VF slope(VF x) {
    DF const d;
    VF const one = hn::Set(d, 1.0F);
    VF const g = gate(x);
    return hn::Mul(g, hn::MulAdd(hn::Mul(hn::Set(d, QuickGelu::kSteepness), x), hn::Sub(one, g), one));
  }

 private:
  static HWY_INLINE VF gate(VF x) { return gate_of(hn::Mul(hn::Set(DF(), -QuickGelu::kSteepness), x)); }
};

/// kernels::ErfGelu, with exp() as erfc()'s only function: erfc(z) = t·Q(t)·exp(−z²), t = 1/(1 + 0.4·z), z ≥ 0. Q
/// interpolates exp(z²)·erfc(z)/t at 11 Chebyshev nodes of t in [0, 1]: within 1.2e-7 of it, evaluated in f32.
struct ErfGeluVectors {
  static HWY_INLINE VF value(VF x) { return hn::Mul(x, phi(x, bell(x))); }
  static HWY_INLINE VF slope(VF x) {
    VF const exponential = bell(x);
    return hn::MulAdd(x, hn::Mul(hn::Set(DF(), ErfGelu::kDensityAtZero), exponential), phi(x, exponential));
  }

 private:
  static constexpr float kQ[11] = {0.2256758315F,  0.2256763169F,  0.2076007204F,   0.1718905719F,
                                   0.118095123F,   0.08712064164F, -0.05379316633F, 0.1468032457F,
                                   -0.2430417318F, 0.1438410693F,  -0.02986862849F};

  /// exp(−x²/2)
  static HWY_INLINE VF bell(VF x) {
    DF const d;
    VF const square = hn::Mul(hn::Mul(hn::Set(d, -0.5F), x), x);
    return hn::Exp(d, hn::Max(square, hn::Set(d, -104.0F)));
  }
  /// Computes Φ(−|x|), which is small and exact; Φ(|x|) is 1 minus that.
  static HWY_INLINE VF phi(VF x, VF bell) {
    DF const d;
    VF const one = hn::Set(d, 1.0F);
    VF const t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.4F * ErfGelu::kHalfRoot), hn::Abs(x), one));
    VF q = hn::Set(d, kQ[10]);
    for (int i = 9; i >= 0; --i) q = hn::MulAdd(q, t, hn::Set(d, kQ[i]));
    VF const tail = hn::Mul(hn::Mul(hn::Mul(hn::Set(d, 0.5F), t), q), bell);
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  }
};

/// Calls run(the vector form of `which`).
template <typename Run>
void with_activation(Activation which, Run const& run) {
  switch (which) {
    case Activation::gelu: return run(GeluVectors());
    case Activation::quick_gelu: return run(QuickGeluVectors());
    case Activation::erf_gelu: return run(ErfGeluVectors());
  }
}

template <typename Function, typename Type>
void activate(void* y, void const* x, float const* bias, std::size_t rows, std::size_t width) {
  using Stored = typename Type::Stored;
  for (std::size_t row = 0; row < rows; ++row) {
    auto const* const from = static_cast<Stored const*>(x) + row * width;
    auto* const to = static_cast<Stored*>(y) + row * width;
    each_vector(width, [&](std::size_t i, auto part) {
      VF const in = hn::Add(part.template load<Type>(from + i), part.template load<Floats>(bias + i));
      part.template store<Type>(Function::value(in), to + i);
    });
  }
}

template <typename Function, typename Type>
void differentiate(void* dx, void const* dy, void const* x, float const* bias, float* dbias, std::size_t rows,
                   std::size_t width) {
  using Stored = typename Type::Stored;
  for (std::size_t row = 0; row < rows; ++row) {
    auto const* const from = static_cast<Stored const*>(x) + row * width;
    auto const* const gradient = static_cast<Stored const*>(dy) + row * width;
    auto* const to = static_cast<Stored*>(dx) + row * width;
    each_vector(width, [&](std::size_t i, auto part) {
      VF const in = hn::Add(part.template load<Type>(from + i), part.template load<Floats>(bias + i));
      VF const g = hn::Mul(part.template load<Type>(gradient + i), Function::slope(in));
      part.template store<Floats>(hn::Add(g, part.template load<Floats>(dbias + i)), dbias + i);
      part.template store<Type>(g, to + i);
    });
  }
}

void bias_activation_kernel(Activation which, void* y, void const* x, float const* bias, MatrixShape const& shape) {
  with_type(shape.type, [&](auto type) {
    with_activation(which, [&](auto function) {
      activate<decltype(function), decltype(type)>(y, x, bias, shape.rows, shape.width);
    });
  });
}

void bias_activation_gradient_kernel(Activation which, void* dx, void const* dy, void const* x, float const* bias,
                                     float* dbias, MatrixShape const& shape) {
  with_type(shape.type, [&](auto type) {
    with_activation(which, [&](auto function) {
      differentiate<decltype(function), decltype(type)>(dx, dy, x, bias, dbias, shape.rows, shape.width);
    });
  });
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(bias_activation_kernel);
HWY_EXPORT(bias_activation_gradient_kernel);

void bias_activation(Activation which, void* y, void const* x, float const* bias, MatrixShape const& shape) {
  HWY_DYNAMIC_DISPATCH(bias_activation_kernel)(which, y, x, bias, shape);
}

void bias_activation_gradient(Activation which, void* dx, void const* dy, void const* x, float const* bias,
                              float* dbias, MatrixShape const& shape) {
  HWY_DYNAMIC_DISPATCH(bias_activation_gradient_kernel)(which, dx, dy, x, bias, dbias, shape);
}

}  // namespace weft::kernels
#endif
