#include "kernels/cpu/adamw.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

/// Where one vector of each array lies.
struct Arrays {
  float* parameter;
  float const* gradient;
  float* exp_avg;
  float* exp_avg_sq;

  HWY_INLINE Arrays operator+(std::size_t i) const {
    return {parameter + i, gradient + i, exp_avg + i, exp_avg_sq + i};
  }
};

/// adamw_element() on a vector: the same operations in the same order.
class Update {
 public:
  explicit Update(AdamWScalars const& s)
      : decay_(hn::Set(D(), s.decay)),
        beta2_(hn::Set(D(), s.beta2)),
        one_minus_beta1_(hn::Set(D(), s.one_minus_beta1)),
        one_minus_beta2_(hn::Set(D(), s.one_minus_beta2)),
        step_size_(hn::Set(D(), s.step_size)),
        inv_sqrt_bias2_(hn::Set(D(), s.inv_sqrt_bias2)),
        eps_(hn::Set(D(), s.eps)) {}

  HWY_INLINE void operator()(Arrays const& at) const {
    D const d;
    V const g = hn::LoadU(d, at.gradient);
    V const m_old = hn::LoadU(d, at.exp_avg);
    V const m = hn::MulAdd(one_minus_beta1_, hn::Sub(g, m_old), m_old);
    V const v = hn::MulAdd(beta2_, hn::LoadU(d, at.exp_avg_sq), hn::Mul(hn::Mul(one_minus_beta2_, g), g));
    V const denominator = hn::MulAdd(hn::Sqrt(v), inv_sqrt_bias2_, eps_);
    V const p = hn::Mul(hn::LoadU(d, at.parameter), decay_);
    hn::StoreU(hn::NegMulAdd(step_size_, hn::Div(m, denominator), p), d, at.parameter);
    hn::StoreU(m, d, at.exp_avg);
    hn::StoreU(v, d, at.exp_avg_sq);
  }

 private:
  V decay_, beta2_, one_minus_beta1_, one_minus_beta2_, step_size_, inv_sqrt_bias2_, eps_;
};

/// Moves every array's lines as Update does. The arrays change places, or the compiler would drop stores of what is
/// already there.
struct Traffic {
  HWY_INLINE void operator()(Arrays const& at) const {
    D const d;
    V const g = hn::LoadU(d, at.gradient);
    V const p = hn::LoadU(d, at.parameter);
    V const m = hn::LoadU(d, at.exp_avg);
    V const v = hn::LoadU(d, at.exp_avg_sq);
    hn::StoreU(hn::Or(g, v), d, at.parameter);
    hn::StoreU(p, d, at.exp_avg);
    hn::StoreU(m, d, at.exp_avg_sq);
  }
};

/// The last, partly filled vector: the same arithmetic on padded copies.
template <typename Body>
void partial(Body const& body, Arrays const& at, std::size_t count) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  HWY_ALIGN float p[kLanes] = {};
  HWY_ALIGN float g[kLanes] = {};
  HWY_ALIGN float m[kLanes] = {};
  HWY_ALIGN float v[kLanes] = {};
  std::size_t const bytes = count * sizeof(float);
  std::memcpy(p, at.parameter, bytes);
  std::memcpy(g, at.gradient, bytes);
  std::memcpy(m, at.exp_avg, bytes);
  std::memcpy(v, at.exp_avg_sq, bytes);
  body(Arrays{p, g, m, v});
  std::memcpy(at.parameter, p, bytes);
  std::memcpy(at.exp_avg, m, bytes);
  std::memcpy(at.exp_avg_sq, v, bytes);
}

template <typename Body>
void for_each_vector(Body const& body, Arrays const& at, std::size_t count) {
  std::size_t const n = hn::Lanes(D());
  std::size_t i = 0;
  for (; i + 2 * n <= count; i += 2 * n) {
    body(at + i);
    body(at + i + n);
  }
  for (; i + n <= count; i += n) body(at + i);
  if (i < count) partial(body, at + i, count - i);
}

void adamw_kernel(float* parameter, float const* gradient, float* exp_avg, float* exp_avg_sq, std::size_t count,
                  AdamWScalars const& scalars) {
  for_each_vector(Update(scalars), {parameter, gradient, exp_avg, exp_avg_sq}, count);
}

void traffic_kernel(float* parameter, float const* gradient, float* exp_avg, float* exp_avg_sq, std::size_t count) {
  for_each_vector(Traffic(), {parameter, gradient, exp_avg, exp_avg_sq}, count);
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(adamw_kernel);
HWY_EXPORT(traffic_kernel);

void adamw(float* parameter, float const* gradient, float* exp_avg, float* exp_avg_sq, std::size_t count,
           AdamWScalars const& scalars) {
  HWY_DYNAMIC_DISPATCH(adamw_kernel)(parameter, gradient, exp_avg, exp_avg_sq, count, scalars);
}

void adamw_traffic(float* parameter, float const* gradient, float* exp_avg, float* exp_avg_sq, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(traffic_kernel)(parameter, gradient, exp_avg, exp_avg_sq, count);
}

}  // namespace weft::kernels
#endif
