#pragma once

#include "kernels/cuda/block.hpp"
#include "kernels/math/loss_scale.hpp"

namespace weft::kernels::cuda {

/// Ends a step of a loss scale in device memory; one block.
struct UpdateLossScaleBody {
  static constexpr unsigned kThreads = 1;
  using Shared = Nothing;

  LossScale* state = nullptr;
  LossScaleRule rule;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    block.each_thread([&](unsigned /*thread*/) { update(*state, rule); });
  }
};

}  // namespace weft::kernels::cuda
