#pragma once

#include <span>

#include "weft/communicator.hpp"
#include "weft/gradients.hpp"

namespace weft {

// weft/gradients.hpp's functions for gradients that are sharded: each rank passes its own shards, none of them twice,
// perhaps none at all. Collective; also throw what Communicator::all_reduce() does.

/// All ranks get the same norm and the same `finite`, whoever has the element that is not.
[[nodiscard]] GradientNorm gradient_norm(Communicator& communicator, std::span<BufferView const> shards,
                                         NormType type = NormType::l2, float factor = 1,
                                         CollectiveOptions const& options = {});

/// By the norm of the whole.
GradientNorm clip_grad_norm(Communicator& communicator, std::span<BufferView const> shards, double max_norm,
                            NormType type = NormType::l2, CollectiveOptions const& options = {});

}  // namespace weft
