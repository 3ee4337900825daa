#pragma once

#include <cstdint>

#include "weft/buffer.hpp"

/// A transformer's fused layers on the CPU, forward and backward, each in one pass over memory. On a GPU:
/// cuda_layers.hpp.
///
/// Matrices are row-major, a row per token, those of a call all of one type: f32, bf16 or f16. Vectors are f32, as many
/// as a row has columns, which is where `width` comes from; computed in f32. The calling thread computes: who has
/// several gives each some rows. A row's bits depend on nothing else; sums over rows ("adds to") are in their order.
/// Outputs may be inputs of the same place. Allocate nothing; thread-safe on different memory.
/// @throws Error{invalid_argument} naming the argument, for counts that do not fit and types that differ;
/// Error{unsupported} for another type or device.
namespace weft::cpu {

/// y = (x − mean)·rstd·w + b of each row, rstd = 1/√(variance + eps); mean and rstd, one a row, are for backward.
void layer_norm(BufferView y, BufferView mean, BufferView rstd, ConstBufferView x, ConstBufferView w, ConstBufferView b,
                float eps = 1e-5F);
/// dx of dy; adds to dw and db.
void layer_norm_gradient(BufferView dx, BufferView dw, BufferView db, ConstBufferView dy, ConstBufferView x,
                         ConstBufferView mean, ConstBufferView rstd, ConstBufferView w);

/// y = gelu(x + b), tanh form (Hendrycks, Gimpel: Gaussian Error Linear Units, 2016).
void bias_gelu(BufferView y, ConstBufferView x, ConstBufferView b);
/// dx = dy·gelu'(x + b); adds to db.
void bias_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x, ConstBufferView b);

/// y = z·σ(1.702·z), z = x + b (of the same paper).
void bias_quick_gelu(BufferView y, ConstBufferView x, ConstBufferView b);
void bias_quick_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x, ConstBufferView b);

/// y = z·Φ(z), z = x + b: GELU itself, by erf.
void bias_erf_gelu(BufferView y, ConstBufferView x, ConstBufferView b);
void bias_erf_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x, ConstBufferView b);

/// Which elements are dropped: those of which a random number, made from the seed and the element's place in the whole
/// matrix, is below p. Nothing is kept for backward, and a GPU drops the same ones.
struct Dropout {
  double p = 0;  ///< in [0, 1)
  std::uint64_t seed = 0;
  std::uint64_t first = 0;  ///< elements of the whole matrix before the rows of this call
};

/// y = residual + dropout(x + b), of what is kept 1/(1 − p) times.
void bias_dropout_add(BufferView y, ConstBufferView x, ConstBufferView b, ConstBufferView residual,
                      Dropout const& dropout);
/// dx of dy; adds to db. The residual's gradient is dy.
void bias_dropout_gradient(BufferView dx, BufferView db, ConstBufferView dy, Dropout const& dropout);

}  // namespace weft::cpu
