#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weft/buffer.hpp"
#include "weft/stream.hpp"

namespace weft::cuda {

/// Of y[rows, out] = x[rows, in] · w[in, out].
struct LinearShape {
  std::size_t rows = 0;
  std::size_t in = 0;
  std::size_t out = 0;
};

/// `batch` sequences of `seq` rows, `heads` heads of `head_width` columns each.
struct AttentionShape {
  std::size_t batch = 0;
  std::size_t seq = 0;
  std::size_t heads = 0;
  std::size_t head_width = 0;

  [[nodiscard]] std::size_t rows() const noexcept { return batch * seq; }
  [[nodiscard]] std::size_t width() const noexcept { return heads * head_width; }
  [[nodiscard]] std::size_t scores() const noexcept { return batch * heads * seq * seq; }
};

/// Which elements are dropped: of the same seed those that cpu::Dropout drops. Nothing is kept for backward.
struct Dropout {
  double p = 0;  ///< in [0, 1)
  std::uint64_t seed = 0;
  /// One i64 or u64 in the GPU's memory, read when it runs, so that replays of a graph can drop otherwise; where it is
  /// empty, `seed`.
  ConstBufferView seed_at{};
};

/// Layers of a transformer on one GPU, forward and backward: matrix products by cuBLAS, the rest fused kernels. In
/// libraries built with WEFT_WITH_CUDA.
///
/// Matrices are row-major, a row per token, of f32, bf16 or f16; a vector's count is its matrices' width. What is
/// summed is summed in f32, f32 products in full precision (not TF32), and the same values give the same bits. Every
/// call only enqueues on the stream, allocates nothing and can be recorded in a graph; buffers live until it has run.
/// Unless a call says otherwise outputs are overwritten and may be inputs of the same size and type; "keep" makes a
/// parameter's gradient keep·old + new: 0 starts a step, whatever was there, and 1 adds. Not thread-safe.
/// @throws Error{invalid_argument} naming the argument, for counts that do not fit, for another device, or types that
/// differ where they may not; Error{unsupported} for another type.
class Layers {
 public:
  struct Limits {
    std::size_t rows = 0;  ///< of matrices whose columns are summed: gradients of biases and norms
    std::size_t columns = 0;
  };

  /// Allocates scratch (64 MiB for cuBLAS, and an f32 for each column of 32 rows) and waits.
  /// @throws Error{invalid_argument} for a CPU stream; Error{unsupported} where cuBLAS is not found.
  Layers(Stream const& stream, Limits const& limits);
  /// The fused ones only, in memory of the caller's: allocates nothing on the GPU, does not wait, and can be made and
  /// dropped around a single call. linear() and attention(), with their gradients, throw Error{unsupported}.
  /// @param scratch at least scratch_count(limits) f32, which live until all calls have run
  /// @throws Error{invalid_argument} for a CPU stream, and for other scratch.
  Layers(Stream const& stream, Limits const& limits, BufferView scratch);
  /// Of sums over rows.
  [[nodiscard]] static std::size_t scratch_count(Limits const& limits) noexcept;
  ~Layers();
  Layers(Layers&&) noexcept;
  Layers& operator=(Layers&&) noexcept;

  /// y = x · w; x and w of one type, y of theirs or f32. y is none of the others.
  void linear(BufferView y, ConstBufferView x, ConstBufferView w, LinearShape const& shape);
  /// dw = xᵀ · dy; x and dy of one type, dw of theirs or f32.
  void linear_weight_gradient(BufferView dw, ConstBufferView dy, ConstBufferView x, LinearShape const& shape,
                              float keep);
  /// dx = dy · wᵀ; as linear().
  void linear_input_gradient(BufferView dx, ConstBufferView dy, ConstBufferView w, LinearShape const& shape);

  /// y = x + b; without b (an empty view) `width` says what a row is, and this converts between types.
  void add_bias(BufferView y, ConstBufferView x, ConstBufferView b, std::size_t width);
  /// y = residual + x + b
  void add_bias_and_residual(BufferView y, ConstBufferView x, ConstBufferView b, ConstBufferView residual);
  /// db = Σ over rows of dy
  void bias_gradient(BufferView db, ConstBufferView dy, float keep);

  /// y = gelu(x + b), tanh form (Hendrycks, Gimpel: Gaussian Error Linear Units, 2016); b may be empty, as in
  /// add_bias().
  void bias_gelu(BufferView y, ConstBufferView x, ConstBufferView b, std::size_t width = 0);
  /// dx = dy·gelu'(x + b), db = Σ over rows of dx; b may be empty, db says what a row is.
  void bias_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x, ConstBufferView b,
                          float keep);
  /// The same with z·σ(1.702·z), and with z·Φ(z), GELU by erf; z = x + b.
  void bias_quick_gelu(BufferView y, ConstBufferView x, ConstBufferView b, std::size_t width = 0);
  void bias_quick_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x, ConstBufferView b,
                                float keep);
  void bias_erf_gelu(BufferView y, ConstBufferView x, ConstBufferView b, std::size_t width = 0);
  void bias_erf_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x, ConstBufferView b,
                              float keep);

  /// y = residual + dropout(x + b), of what is kept 1/(1 − p) times; b may be empty, as in add_bias().
  void bias_dropout_add(BufferView y, ConstBufferView x, ConstBufferView b, ConstBufferView residual,
                        Dropout const& dropout, std::size_t width = 0);
  /// dx of dy, db = Σ over rows of dx. The residual's gradient is dy.
  void bias_dropout_gradient(BufferView dx, BufferView db, ConstBufferView dy, Dropout const& dropout, float keep);

  /// y = (x − mean)·rstd·w + b of each row, rstd = 1/√(variance + eps); mean and rstd are f32, one a row, for
  /// backward. w and b may be empty: 1 and 0.
  void layer_norm(BufferView y, BufferView mean, BufferView rstd, ConstBufferView x, ConstBufferView w,
                  ConstBufferView b, float eps = 1e-5F);
  void layer_norm_weight_gradient(BufferView dw, BufferView db, ConstBufferView dy, ConstBufferView x,
                                  ConstBufferView mean, ConstBufferView rstd, float keep);
  /// Adds the gradient of x to dx, which has the residual branch's, or with add = false overwrites it. w may be empty.
  void layer_norm_input_gradient(BufferView dx, ConstBufferView dy, ConstBufferView x, ConstBufferView mean,
                                 ConstBufferView rstd, ConstBufferView w, bool add = true);
  /// Both, of the same bits: up to 4096 columns in one pass over dy and x.
  void layer_norm_gradient(BufferView dx, BufferView dw, BufferView db, ConstBufferView dy, ConstBufferView x,
                           ConstBufferView mean, ConstBufferView rstd, ConstBufferView w, float keep, bool add = true);

  /// y = softmax(q·kᵀ/√head_width)·v, each token over itself and those before it. qkv[rows, 3·width] holds q, k, v side
  /// by side; probabilities[batch, heads, seq, seq], of qkv's type, are kept for backward; scores are scratch of as
  /// many f32, and may be the probabilities where those are f32.
  void attention(BufferView y, BufferView probabilities, BufferView scores, ConstBufferView qkv,
                 AttentionShape const& shape);
  /// dqkv from dy. Overwrites the probabilities; scores are other memory.
  void attention_gradient(BufferView dqkv, BufferView probabilities, BufferView scores, ConstBufferView dy,
                          ConstBufferView qkv, AttentionShape const& shape);

  /// x[row] = tokens[ids[row]] + positions[row mod seq]; ids are i32, and rows of the table: nobody checks.
  void embedding(BufferView x, ConstBufferView tokens, ConstBufferView positions, ConstBufferView ids, std::size_t seq);
  /// Positions from `seq` on get a gradient of 0. Takes time for ids times rows of the table.
  void embedding_gradient(BufferView dtokens, BufferView dpositions, ConstBufferView dx, ConstBufferView ids,
                          std::size_t seq, std::size_t width, float keep);

  /// What cross_entropy() finds in each row, and what backward needs: 2·rows + 1 f32.
  [[nodiscard]] static constexpr std::size_t cross_entropy_scratch(std::size_t rows) noexcept { return 2 * rows + 1; }
  /// loss (one f32) = mean over rows of −log softmax(logits)[target]; targets are i32, rows below 0 do not count.
  void cross_entropy(BufferView loss, BufferView scratch, ConstBufferView logits, ConstBufferView targets);
  /// dlogits = factor·scale·∂loss/∂logits, after cross_entropy() with the same scratch; scale, one f32, is read when it
  /// runs (GradScaler::scale_view()); an empty view is 1.
  void cross_entropy_gradient(BufferView dlogits, ConstBufferView scratch, ConstBufferView logits,
                              ConstBufferView targets, float factor, ConstBufferView scale);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::cuda
