#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/data_type.hpp"

namespace weft::kernels {

// Matrices are row-major with `width` columns; all matrices of a call have one type: f32, bf16 or f16. Vectors are f32.
// Each function makes one pass over memory, if rows fit the first cache. An output may be the same memory as an input.
// Sums over rows are added to what the output has already, row by row. Thread-safe, do not allocate.

struct MatrixShape {
  DataType type = DataType::f32;
  std::size_t rows = 0;
  std::size_t width = 0;
};

struct LayerNormArrays {
  void* y;
  void const* x;
  float const *weight, *bias;
  float *mean, *rstd;  ///< one per row
};
/// y = (x − mean)·rstd·weight + bias, rstd = 1/√(variance + eps)
void layer_norm(LayerNormArrays const& arrays, MatrixShape const& shape, float eps);

struct LayerNormGradientArrays {
  void* dx;
  void const *dy, *x;
  float const *weight, *mean, *rstd;
  float *dweight, *dbias;
};
void layer_norm_gradient(LayerNormGradientArrays const& arrays, MatrixShape const& shape);

enum class Activation : std::uint8_t { gelu, quick_gelu, erf_gelu };  ///< those of kernels/math/gelu.hpp

/// y = activation(x + bias)
void bias_activation(Activation which, void* y, void const* x, float const* bias, MatrixShape const& shape);
/// dx = dy·activation'(x + bias), dbias += dx
void bias_activation_gradient(Activation which, void* dx, void const* dy, void const* x, float const* bias,
                              float* dbias, MatrixShape const& shape);

/// As kernels/cuda/model/dropout.hpp: element e of the whole matrix is kept where word e mod 4 of
/// philox({⌊e/4⌋, 0, 0}, seed) is at least `threshold`.
struct DropoutChoice {
  std::uint64_t seed = 0;
  std::uint32_t threshold = 0;  ///< p·2³²
  float scale = 1;              ///< of what is kept: 1/(1 − p)
  std::uint64_t first = 0;      ///< the first row's first element, in the whole matrix
};

/// y = residual + dropout(x + bias)
void bias_dropout_add(void* y, void const* x, float const* bias, void const* residual, DropoutChoice const& choice,
                      MatrixShape const& shape);
/// dx = dropout's factor·dy, dbias += dx
void bias_dropout_gradient(void* dx, void const* dy, float* dbias, DropoutChoice const& choice,
                           MatrixShape const& shape);

}  // namespace weft::kernels
