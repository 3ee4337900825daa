// What a model begins and ends with: embeddings and the loss.
#include "kernels/cuda/model/cross_entropy.hpp"
#include "kernels/cuda/model/embedding.hpp"
#include "layers/layers_impl.hpp"

namespace weft::cuda {
namespace {

namespace kc = kernels::cuda;

/// cross_entropy()'s scratch: log Σ exp of each row, its loss, and 1 / rows that count.
struct Found {
  float* log_sums;
  float* losses;
  float* inverse_rows;

  Found(Arguments const& arguments, ConstBufferView scratch, std::size_t rows)
      : log_sums(arguments.floats(scratch, Layers::cross_entropy_scratch(rows), "scratch")),
        losses(log_sums + rows),
        inverse_rows(losses + rows) {}
};

}  // namespace

void Layers::embedding(BufferView x, ConstBufferView tokens, ConstBufferView positions, ConstBufferView ids,
                       std::size_t seq) {
  Arguments const arguments("embedding", impl_->device());
  arguments.require(ids.count != 0 && x.count % ids.count == 0, "x must have a row for each id");
  std::size_t const width = x.count / ids.count;
  std::size_t const table = arguments.rows(positions, width, "positions");
  static_cast<void>(arguments.rows(tokens, width, "tokens"));
  arguments.require(seq != 0 && seq <= table, "seq must be from 1 to the rows of positions");
  impl_->launch(
      kc::EmbeddingBody{arguments.tensor(x, x.count, "x"), arguments.tensor(tokens, tokens.count, "tokens"),
                        arguments.tensor(positions, positions.count, "positions"), arguments.ids(ids, ids.count, "ids"),
                        static_cast<std::uint32_t>(seq), static_cast<std::uint32_t>(width)},
      ids.count);
}

void Layers::embedding_gradient(BufferView dtokens, BufferView dpositions, ConstBufferView dx, ConstBufferView ids,
                                std::size_t seq, std::size_t width, float keep) {
  Arguments const arguments("embedding_gradient", impl_->device());
  std::size_t const rows = arguments.rows(dx, width, "dx");
  arguments.require(seq != 0, "seq must be at least 1");
  auto const body = [&](BufferView out, std::int32_t const* which, char const* name) {
    return kc::EmbeddingGradientBody{arguments.tensor(out, out.count, name),
                                     arguments.tensor(dx, dx.count, "dx"),
                                     which,
                                     static_cast<std::uint32_t>(rows),
                                     static_cast<std::uint32_t>(seq),
                                     static_cast<std::uint32_t>(width),
                                     keep};
  };
  auto const tokens = body(dtokens, arguments.ids(ids, rows, "ids"), "dtokens");
  auto const positions = body(dpositions, nullptr, "dpositions");
  std::size_t const table = arguments.rows(dtokens, width, "dtokens");
  impl_->launch(positions, arguments.rows(dpositions, width, "dpositions"));
  impl_->launch(tokens, table);
}

void Layers::cross_entropy(BufferView loss, BufferView scratch, ConstBufferView logits, ConstBufferView targets) {
  Arguments const arguments("cross_entropy", impl_->device());
  std::size_t const rows = targets.count;
  arguments.require(rows != 0 && logits.count % rows == 0, "logits must have a row for each target");
  Found const found(arguments, scratch, rows);
  auto const* const ids = arguments.ids(targets, rows, "targets");
  impl_->launch(kc::CrossEntropyBody{arguments.tensor(logits, logits.count, "logits"), ids,
                                     static_cast<std::uint32_t>(logits.count / rows), found.losses, found.log_sums},
                rows);
  impl_->launch(kc::MeanLossBody{found.losses, ids, static_cast<std::uint32_t>(rows), arguments.floats(loss, 1, "loss"),
                                 found.inverse_rows},
                1);
}

void Layers::cross_entropy_gradient(BufferView dlogits, ConstBufferView scratch, ConstBufferView logits,
                                    ConstBufferView targets, float factor, ConstBufferView scale) {
  Arguments const arguments("cross_entropy_gradient", impl_->device());
  std::size_t const rows = targets.count;
  arguments.require(rows != 0 && logits.count % rows == 0, "logits must have a row for each target");
  Found const found(arguments, scratch, rows);
  kc::Scalar const scalar{1, scale.data == nullptr ? nullptr : arguments.floats(scale, 1, "scale")};
  impl_->launch(
      kc::CrossEntropyGradientBody{arguments.tensor(dlogits, logits.count, "dlogits"),
                                   arguments.tensor(logits, logits.count, "logits"),
                                   arguments.ids(targets, rows, "targets"), found.log_sums, found.inverse_rows, scalar,
                                   static_cast<std::uint32_t>(logits.count / rows), factor},
      rows);
}

}  // namespace weft::cuda
