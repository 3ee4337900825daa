#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace train_gpt {

// The layers of a GPT on row-major f32 matrices, one row per token. Forward functions overwrite their output. Backward
// functions overwrite gradients of activations unless they say "adds", and treat gradients of parameters as g ← keep·g
// + new, so that keep = 0 starts a step and keep = 1 accumulates.

/// y[rows, out] = x[rows, in] · w[in, out] + b[out]; without bias when b is null.
void linear_forward(float* y, float const* x, float const* w, float const* b, int rows, int in, int out);
/// Gradients of w and (unless null) b.
void linear_backward_weights(float* dw, float* db, float const* dy, float const* x, int rows, int in, int out,
                             float keep);
/// Gradient of x.
void linear_backward_input(float* dx, float const* dy, float const* w, int rows, int in, int out);

/// y = (x − mean)·rstd·w + b per row; mean and rstd are kept for backward.
void layer_norm_forward(float* y, float* mean, float* rstd, float const* x, float const* w, float const* b, int rows,
                        int width);
void layer_norm_backward_weights(float* dw, float* db, float const* dy, float const* x, float const* mean,
                                 float const* rstd, int rows, int width, float keep);
/// Adds the gradient of x to dx, which carries the residual branch's gradient.
void layer_norm_backward_input(float* dx, float const* dy, float const* x, float const* mean, float const* rstd,
                               float const* w, int rows, int width);

/// GELU, tanh form (Hendrycks, Gimpel: Gaussian Error Linear Units, 2016).
void gelu_forward(float* y, float const* x, std::size_t count);
/// dy becomes the gradient of x, in place.
void gelu_backward(float* dy, float const* x, std::size_t count);

/// Where a batch of sequences lies: `batch` sequences of `seq` rows, `heads` heads of `head_width` columns each.
struct AttentionShape {
  int batch = 0;
  int seq = 0;
  int heads = 0;
  int head_width = 0;

  [[nodiscard]] int width() const noexcept { return heads * head_width; }
};

/// Causal attention; qkv[rows, 3·width] holds q, k, v side by side; probabilities[batch, heads, seq, seq] is kept for
/// backward.
void attention_forward(float* y, float* probabilities, float const* qkv, AttentionShape const& shape);
/// scratch: seq·seq floats.
void attention_backward(float* dqkv, float* scratch, float const* dy, float const* qkv, float const* probabilities,
                        AttentionShape const& shape);

/// x[row] = tokens[id] + positions[row mod seq].
void embedding_forward(float* x, float const* tokens, float const* positions, std::span<std::uint8_t const> ids,
                       int seq, int width);
void token_embedding_backward(float* dtokens, float const* dx, std::span<std::uint8_t const> ids, int width,
                              int vocabulary, float keep);
/// `table_rows` rows of dpositions exist; only the first `seq` get a contribution.
void position_embedding_backward(float* dpositions, float const* dx, int rows, int seq, int table_rows, int width,
                                 float keep);

/// Mean of −log softmax(logits)[target] over the rows.
[[nodiscard]] float cross_entropy(float const* logits, std::span<std::uint8_t const> targets, int vocabulary);
/// logits become scale·∂(mean loss)/∂logits, in place.
void cross_entropy_backward(float* logits, std::span<std::uint8_t const> targets, int vocabulary, float scale);

}  // namespace train_gpt
