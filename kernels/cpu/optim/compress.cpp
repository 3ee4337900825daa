#include "kernels/cpu/optim/compress.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optim/compress.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/optim/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

// One vector of each.
HWY_INLINE void compress_vector(float const* gradient, float* residual, Elements const& wire, std::size_t i) {
  DF const d;
  auto const whole = hn::Add(hn::LoadU(d, gradient + i), hn::LoadU(d, residual + i));
  wire.store(whole, i);
  auto const rest = hn::Sub(whole, wire.load(i));
  // The rest is not finite if c is infinite or NaN, or if c overflowed to infinity on the wire.
  hn::StoreU(hn::IfThenElseZero(hn::Eq(hn::Mul(rest, hn::Zero(d)), hn::Zero(d)), rest), d, residual + i);
}

void compress_kernel(float const* gradient, float* residual, void* wire, DataType type, std::size_t count) {
  constexpr std::size_t kMost = hn::MaxLanes(DF());
  Elements const target{static_cast<std::byte*>(wire), type};
  auto const n = hn::Lanes(DF());
  std::size_t i = 0;
  for (; i + n <= count; i += n) compress_vector(gradient, residual, target, i);
  std::size_t const rest = count - i;
  if (rest == 0) return;
  HWY_ALIGN float values[kMost] = {};
  HWY_ALIGN float residuals[kMost] = {};
  HWY_ALIGN std::byte bytes[kMost * sizeof(float)] = {};
  std::memcpy(values, gradient + i, rest * sizeof(float));
  std::memcpy(residuals, residual + i, rest * sizeof(float));
  compress_vector(values, residuals, {bytes, type}, 0);
  std::memcpy(residual + i, residuals, rest * sizeof(float));
  std::memcpy(target.data + i * size_of(type), bytes, rest * size_of(type));
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(compress_kernel);

void compress_with_feedback(float const* gradient, float* residual, void* wire, DataType type, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(compress_kernel)(gradient, residual, wire, type, count);
}

}  // namespace weft::kernels
#endif
