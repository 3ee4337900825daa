#include <algorithm>
#include <cmath>

#include "kernels/cuda/model/causal_softmax.hpp"
#include "layers/layers_impl.hpp"

namespace weft::cuda {
namespace {

namespace kc = kernels::cuda;
using Operand = Product::Operand;

/// A head's matrices: in tensors whose rows are tokens (q, k, v, y), or of seq × seq elements of their own (scores).
/// There is one stride from head to head, and one from sequence to sequence.
struct Heads {
  kc::TensorPointer tensor;
  std::size_t leading, head_stride, sequence_stride;

  [[nodiscard]] Operand at(std::size_t sequence, std::size_t head, std::size_t stride, bool transposed) const {
    auto* const first =
        static_cast<std::byte*>(tensor.data) + (sequence * sequence_stride + head * head_stride) * size_of(tensor.type);
    return {first, tensor.type, leading, stride, transposed};
  }
};

/// Part 0, 1 or 2 (q, k, v) of qkv.
Heads part_of(kc::TensorPointer const& qkv, std::size_t part, AttentionShape const& shape) {
  std::size_t const width = shape.width();
  auto* const first = static_cast<std::byte*>(qkv.data) + part * width * size_of(qkv.type);
  return {{first, qkv.type}, 3 * width, shape.head_width, shape.seq * 3 * width};
}
Heads rows_of(kc::TensorPointer const& y, AttentionShape const& shape) {
  return {y, shape.width(), shape.head_width, shape.seq * shape.width()};
}
Heads squares_of(kc::TensorPointer const& scores, AttentionShape const& shape) {
  std::size_t const square = shape.seq * shape.seq;
  return {scores, shape.seq, square, shape.heads * square};
}

struct Factor {
  Heads heads;
  bool transposed = false;
};

/// c = alpha·op(a)·op(b) for every head of every sequence. A batch of cuBLAS has a single stride, so a call takes
/// either all heads of a sequence or all sequences of a head, whichever makes fewer calls.
void multiply(Cublas const& cublas, AttentionShape const& shape, Factor const& a, Factor const& b, Heads const& c,
              std::size_t m, std::size_t n, std::size_t k, float alpha) {
  bool const by_sequence = shape.batch <= shape.heads;
  std::size_t const calls = std::min(shape.batch, shape.heads);
  for (std::size_t i = 0; i < calls; ++i) {
    auto const operand = [&](Heads const& heads, bool transposed) {
      return by_sequence ? heads.at(i, 0, heads.head_stride, transposed)
                         : heads.at(0, i, heads.sequence_stride, transposed);
    };
    cublas.multiply({operand(a.heads, a.transposed), operand(b.heads, b.transposed), operand(c, false), m, n, k, alpha,
                     0, std::max(shape.batch, shape.heads)});
  }
}

float scale_of(AttentionShape const& shape) {
  return 1 / std::sqrt(static_cast<float>(shape.head_width));
}

}  // namespace

void Layers::attention(BufferView y, BufferView probabilities, BufferView scores, ConstBufferView qkv,
                       AttentionShape const& shape) {
  Arguments const arguments("attention", impl_->device());
  auto const in = arguments.tensor(qkv, shape.rows() * 3 * shape.width(), "qkv");
  auto const out = arguments.tensor(y, shape.rows() * shape.width(), "y");
  auto const p = arguments.tensor(probabilities, shape.scores(), "probabilities");
  kc::TensorPointer const s{arguments.floats(scores, shape.scores(), "scores"), DataType::f32};
  arguments.require(in.type == p.type && in.type == out.type, "y, probabilities and qkv must be of one type");
  auto const& cublas = impl_->cublas("attention");
  std::size_t const seq = shape.seq;
  multiply(cublas, shape, {part_of(in, 0, shape)}, {part_of(in, 1, shape), true}, squares_of(s, shape), seq, seq,
           shape.head_width, scale_of(shape));
  impl_->launch(kc::CausalSoftmaxBody{p, s, static_cast<std::uint32_t>(seq)},
                shape.scores() / std::max<std::size_t>(1, seq));
  multiply(cublas, shape, {squares_of(p, shape)}, {part_of(in, 2, shape)}, rows_of(out, shape), seq, shape.head_width,
           seq, 1);
}

void Layers::attention_gradient(BufferView dqkv, BufferView probabilities, BufferView scores, ConstBufferView dy,
                                ConstBufferView qkv, AttentionShape const& shape) {
  Arguments const arguments("attention_gradient", impl_->device());
  auto const in = arguments.tensor(qkv, shape.rows() * 3 * shape.width(), "qkv");
  auto const out = arguments.tensor(dqkv, qkv.count, "dqkv");
  auto const g = arguments.tensor(dy, shape.rows() * shape.width(), "dy");
  auto const p = arguments.tensor(probabilities, shape.scores(), "probabilities");
  kc::TensorPointer const dp{arguments.floats(scores, shape.scores(), "scores"), DataType::f32};
  arguments.require(in.type == p.type && in.type == out.type && in.type == g.type,
                    "dqkv, probabilities, dy and qkv must be of one type");
  arguments.require(dp.data != p.data, "scores must not be the probabilities");
  auto const& cublas = impl_->cublas("attention_gradient");
  std::size_t const seq = shape.seq;
  std::size_t const head = shape.head_width;
  multiply(cublas, shape, {squares_of(p, shape), true}, {rows_of(g, shape)}, part_of(out, 2, shape), seq, head, seq, 1);
  multiply(cublas, shape, {rows_of(g, shape)}, {part_of(in, 2, shape), true}, squares_of(dp, shape), seq, seq, head, 1);
  impl_->launch(kc::CausalSoftmaxGradientBody{p, dp, p, static_cast<std::uint32_t>(seq)},
                shape.scores() / std::max<std::size_t>(1, seq));
  multiply(cublas, shape, {squares_of(p, shape)}, {part_of(in, 1, shape)}, part_of(out, 0, shape), seq, head, seq,
           scale_of(shape));
  multiply(cublas, shape, {squares_of(p, shape), true}, {part_of(in, 0, shape)}, part_of(out, 1, shape), seq, head, seq,
           scale_of(shape));
}

}  // namespace weft::cuda
