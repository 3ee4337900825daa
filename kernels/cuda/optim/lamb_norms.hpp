#pragma once

#include "kernels/cuda/optim/table.hpp"

namespace weft::kernels::cuda {

/// Adds up the chunks' sums of each tensor, always in the same order; one block per tensor.
struct TensorNormsBody {
  static constexpr unsigned kThreads = 256;
  using Shared = SumsShared;

  UpdateTable table;
  std::uint32_t first_tensor = 0;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    std::uint32_t const index = first_tensor + block.index();
    UpdateTensor const& tensor = table.tensors[index];
    block.each_thread([&](unsigned t) {
      LambNorms sum{};
      if (table.groups[tensor.group].skip) {  // the step was skipped, so there are no chunk sums
        shared.sums[t] = sum;
        return;
      }
      for (std::uint32_t k = t; k < tensor.chunks; k += kThreads) {
        LambNorms const& one = table.chunk_norms[tensor.first_chunk + k];
        sum.parameter += one.parameter;
        sum.direction += one.direction;
      }
      shared.sums[t] = sum;
    });
    combine_all<kThreads>(block, shared.sums, [](LambNorms const& a, LambNorms const& b) {
      return LambNorms{a.parameter + b.parameter, a.direction + b.direction};
    });
    block.each_thread([&](unsigned t) {
      if (t == 0) table.tensor_norms[index] = shared.sums[0];
    });
  }
};

/// Copies the norms of a table's tensors into an array for all tensors of a model, or back.
struct MoveNormsBody {
  static constexpr unsigned kMost = 240;
  static constexpr unsigned kThreads = 256;
  using Shared = Nothing;

  LambNorms* here = nullptr;  ///< of `count` consecutive tensors of the table
  LambNorms* all = nullptr;
  bool back = false;
  unsigned count = 0;
  std::uint32_t places[kMost];  ///< each tensor's index in `all`

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    block.each_thread([&](unsigned t) {
      if (t >= count) return;
      if (back) {
        here[t] = all[places[t]];
      } else {
        all[places[t]] = here[t];
      }
    });
  }
};

/// Sets the norms of one tensor.
struct SetNormsBody {
  static constexpr unsigned kThreads = 1;
  using Shared = Nothing;

  LambNorms norms;
  LambNorms* to = nullptr;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    block.each_thread([&](unsigned /*thread*/) { *to = norms; });
  }
};

}  // namespace weft::kernels::cuda
