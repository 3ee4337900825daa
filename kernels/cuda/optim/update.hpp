#pragma once

#include "kernels/cuda/optim/table.hpp"

namespace weft::kernels::cuda {

/// Unscales, clips, updates, rounds and zeroes in one pass over the memory of many tensors, with one block per chunk. A
/// thread takes four elements at a time, so that a warp's f32 accesses, most of the traffic, are 512 bytes in a row.
template <typename Rule>
struct UpdateBody {
  using Traits = RuleTraits<Rule>;
  static constexpr unsigned kThreads = 256;
  using Shared = std::conditional_t<Traits::kSums, SumsShared, Nothing>;

  UpdateTable table;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, [[maybe_unused]] Shared& shared) const {
    Chunk const chunk = table.chunks[block.index()];
    UpdateTensor const& tensor = table.tensors[chunk.tensor];
    GroupScalars const& scalars = table.groups[tensor.group];
    UpdateRange const range(tensor, table.gradients[chunk.tensor], chunk);
    if (scalars.skip) {
      block.each_thread([&](unsigned t) {
        if (Traits::kReadsGradient && table.zero) zero_gradient<kThreads>(range, t);
      });
      return;
    }
    GradientUse const use = scalars.use;
    typename Block::template PerThread<Rule> rules;
    block.each_thread([&](unsigned t) {
      rules[t] = make_rule<Rule>(scalars, table.tensor_norms + chunk.tensor);
      for_each_group<kThreads, 4>(t, range.count, [&](auto width, std::uint32_t i) {
        update<decltype(width)::kLanes>(range, rules[t], use, i);
      });
    });
    if constexpr (Traits::kSums) sum_chunk(block, rules, shared.sums, *table.norms_of(tensor, chunk));
  }

 private:
  template <int kLanes>
  WEFT_KERNEL void update(UpdateRange const& range, Rule& rule, GradientUse const& use, std::uint32_t i) const {
    constexpr int kStates = Rule::kStates;
    auto const raw_p = range.computed.template load<kLanes>(i);
    RawLanes<kLanes> raw_g{};
    if constexpr (Traits::kReadsGradient) raw_g = range.gradient.template load<kLanes>(i);
    RawLanes<kLanes> raw_state[kStates + 1];
    WEFT_UNROLL for (int k = 0; k < kStates; ++k) raw_state[k] = range.state_array(k).template load<kLanes>(i);
    auto p = widen(raw_p, range.computed.type);
    auto const g = widen(raw_g, Traits::kReadsGradient ? range.gradient.type : DataType::f32);
    Lanes<kLanes> state[kStates + 1];
    WEFT_UNROLL for (int k = 0; k < kStates; ++k) state[k] = widen(raw_state[k], DataType::f32);
    WEFT_UNROLL for (int lane = 0; lane < kLanes; ++lane) {
      float own[kStates + 1];
      for (int k = 0; k < kStates; ++k) own[k] = state[k].x[lane];
      p.x[lane] = rule(p.x[lane], use(g.x[lane]), own);
      for (int k = 0; k < kStates; ++k) state[k].x[lane] = own[k];
    }
    if constexpr (Traits::kWrites) range.write_parameter(p, i);
    if constexpr (Traits::kWritesStates) {
      WEFT_UNROLL for (int k = 0; k < kStates; ++k) range.state_array(k).store(state[k], i);
    }
    if (Traits::kReadsGradient && table.zero) range.gradient.store(Lanes<kLanes>{}, i);
  }
};

}  // namespace weft::kernels::cuda
