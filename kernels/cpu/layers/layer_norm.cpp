#include "kernels/cpu/layers/layers.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layers/layer_norm.cpp"
#include <hwy/foreach_target.h>
//
#include <cmath>

#include "kernels/cpu/layers/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

template <typename Type>
void layer_norm_rows(LayerNormArrays const& arrays, std::size_t rows, std::size_t width, float eps) {
  using Stored = typename Type::Stored;
  DF const d;
  for (std::size_t row = 0; row < rows; ++row) {
    auto const* const x = static_cast<Stored const*>(arrays.x) + row * width;
    auto* const y = static_cast<Stored*>(arrays.y) + row * width;
    float const sum = sum_over(
        width, [&](std::size_t i, auto part, VF& sums) { sums = hn::Add(sums, part.template load<Type>(x + i)); });
    float const mean = sum / static_cast<float>(width);
    auto const means = hn::Set(d, mean);
    float const squares = sum_over(width, [&](std::size_t i, auto part, VF& sums) {
      auto const off = part.only(hn::Sub(part.template load<Type>(x + i), means));
      sums = hn::MulAdd(off, off, sums);
    });
    float const rstd = 1 / std::sqrt(squares / static_cast<float>(width) + eps);
    auto const rstds = hn::Set(d, rstd);
    each_vector(width, [&](std::size_t i, auto part) {
      auto const x_hat = hn::Mul(hn::Sub(part.template load<Type>(x + i), means), rstds);
      auto const weight = part.template load<Floats>(arrays.weight + i);
      part.template store<Type>(hn::MulAdd(x_hat, weight, part.template load<Floats>(arrays.bias + i)), y + i);
    });
    arrays.mean[row] = mean;
    arrays.rstd[row] = rstd;
  }
}

/// dx = rstd·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·weight.
template <typename Type>
void layer_norm_gradient_rows(LayerNormGradientArrays const& arrays, std::size_t rows, std::size_t width) {
  using Stored = typename Type::Stored;
  DF const d;
  for (std::size_t row = 0; row < rows; ++row) {
    auto const* const x = static_cast<Stored const*>(arrays.x) + row * width;
    auto const* const dy = static_cast<Stored const*>(arrays.dy) + row * width;
    auto* const dx = static_cast<Stored*>(arrays.dx) + row * width;
    auto const mean = hn::Set(d, arrays.mean[row]);
    auto const rstd = hn::Set(d, arrays.rstd[row]);
    auto const sums = sum_both(width, [&](std::size_t i, auto part, VF& plain, VF& with_x) {
      auto const x_hat = hn::Mul(hn::Sub(part.template load<Type>(x + i), mean), rstd);
      auto const one = part.template load<Type>(dy + i);
      auto const g = hn::Mul(one, part.template load<Floats>(arrays.weight + i));
      plain = hn::Add(plain, g);
      with_x = hn::MulAdd(g, x_hat, with_x);
      auto const dweight = hn::MulAdd(one, x_hat, part.template load<Floats>(arrays.dweight + i));
      part.template store<Floats>(dweight, arrays.dweight + i);
      part.template store<Floats>(hn::Add(one, part.template load<Floats>(arrays.dbias + i)), arrays.dbias + i);
    });
    auto const plain_mean = hn::Set(d, sums.one / static_cast<float>(width));
    auto const with_x_mean = hn::Set(d, sums.other / static_cast<float>(width));
    each_vector(width, [&](std::size_t i, auto part) {
      auto const x_hat = hn::Mul(hn::Sub(part.template load<Type>(x + i), mean), rstd);
      auto const g = hn::Mul(part.template load<Type>(dy + i), part.template load<Floats>(arrays.weight + i));
      auto const off = hn::NegMulAdd(x_hat, with_x_mean, hn::Sub(g, plain_mean));
      part.template store<Type>(hn::Mul(rstd, off), dx + i);
    });
  }
}

void layer_norm_kernel(LayerNormArrays const& arrays, MatrixShape const& shape, float eps) {
  with_type(shape.type, [&](auto type) { layer_norm_rows<decltype(type)>(arrays, shape.rows, shape.width, eps); });
}

void layer_norm_gradient_kernel(LayerNormGradientArrays const& arrays, MatrixShape const& shape) {
  with_type(shape.type, [&](auto type) { layer_norm_gradient_rows<decltype(type)>(arrays, shape.rows, shape.width); });
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(layer_norm_kernel);
HWY_EXPORT(layer_norm_gradient_kernel);

void layer_norm(LayerNormArrays const& arrays, MatrixShape const& shape, float eps) {
  HWY_DYNAMIC_DISPATCH(layer_norm_kernel)(arrays, shape, eps);
}

void layer_norm_gradient(LayerNormGradientArrays const& arrays, MatrixShape const& shape) {
  HWY_DYNAMIC_DISPATCH(layer_norm_gradient_kernel)(arrays, shape);
}

}  // namespace weft::kernels
#endif
