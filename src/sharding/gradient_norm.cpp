#include <array>

#include "sharding/norm_of_all.hpp"
#include "weft/sharded_gradients.hpp"

namespace weft {

NormParts parts_of_all(Communicator& communicator, NormParts const& mine, NormType type,
                       CollectiveOptions const& options) {
  std::array<double, 2> parts{mine.norm, mine.not_finite};
  std::span<double> const view(parts);
  communicator.all_reduce(view, view, type == NormType::l2 ? ReduceOp::sum : ReduceOp::max, options).wait();
  return {parts[0], parts[1]};
}

GradientNorm gradient_norm(Communicator& communicator, std::span<BufferView const> shards, NormType type, float factor,
                           CollectiveOptions const& options) {
  return norm_of(parts_of_all(communicator, measure_parts(shards, type, factor), type, options), type);
}

GradientNorm clip_grad_norm(Communicator& communicator, std::span<BufferView const> shards, double max_norm,
                            NormType type, CollectiveOptions const& options) {
  static_cast<void>(clip_factor(0, max_norm));  // refused before anything is sent
  auto const norm = gradient_norm(communicator, shards, type, 1, options);
  scale_by_clip(shards, norm, max_norm);
  return norm;
}

}  // namespace weft
