#pragma once

#include "kernels/cuda/optim/table.hpp"

namespace weft::kernels::cuda {

/// The code of a rule's state `which`: state 0 has a sign (except Adagrad's), all others are positive.
template <typename Rule>
WEFT_KERNEL constexpr StateCode code_of(int which) {
  constexpr bool kAllPositive = std::is_same_v<Rule, AdagradRule>;
  return which == 0 && !kAllPositive ? StateCode::signed_squares : StateCode::positive_fourths;
}

/// The eight elements that a thread works on; 32 threads share a block of states.
struct PackedLanes {
  static constexpr int kLanes = 8;
  static constexpr unsigned kThreadsOfBlock = kStateBlock / kLanes;

  std::uint64_t first;  ///< index of the first element in the tensor
  int count;            ///< fewer than kLanes at the tensor's end; 0 beyond it

  [[nodiscard]] WEFT_KERNEL std::uint64_t block() const { return first / kStateBlock; }
  [[nodiscard]] WEFT_KERNEL std::uint32_t in_block(int lane) const {
    return static_cast<std::uint32_t>(first % kStateBlock) + static_cast<std::uint32_t>(lane);
  }
  // Packed arrays are aligned to 8 bytes, and so is `first`.

  WEFT_KERNEL void load(std::uint8_t const* packed, StateCode code, float scale, float* values) const {
    Word8 two{0, 0};
    if (count == kLanes) {
      two = load_word<Word8>(packed + first);
    } else {
      for (int lane = 0; lane < count; ++lane) {
        (lane < 4 ? two.x : two.y) |= static_cast<std::uint32_t>(packed[first + lane]) << (8 * (lane % 4));
      }
    }
    WEFT_UNROLL for (int lane = 0; lane < kLanes; ++lane) {
      std::uint32_t const word = lane < 4 ? two.x : two.y;
      values[lane] = block_state::unpack(code, static_cast<std::uint8_t>(word >> (8 * (lane % 4))), scale);
    }
  }
  WEFT_KERNEL void store(std::uint8_t* packed, Word8 const& two) const {
    if (count == kLanes) return store_word(packed + first, two);
    for (int lane = 0; lane < count; ++lane) {
      packed[first + lane] = static_cast<std::uint8_t>((lane < 4 ? two.x : two.y) >> (8 * (lane % 4)));
    }
  }
};

/// What a thread of a packed update keeps until all values of its block of states are known.
template <int kStates>
struct PackedValues {
  float state[kStates][PackedLanes::kLanes];
};

/// Each thread's part of what the 32 threads of a block of states combine: the largest magnitude, and a `poison` that
/// is NaN if anything is not finite.
struct PackedShared {
  float largest[3][256];
  float poison[3][256];
  LambNorms sums[256];
};

/// Stores a thread's part in `shared`. Lanes beyond its count are ignored.
template <int kStates>
WEFT_KERNEL void note(PackedLanes const& lanes, PackedValues<kStates> const& values, PackedShared& shared,
                      unsigned thread) {
  WEFT_UNROLL for (int which = 0; which < kStates; ++which) {
    float largest = 0;
    float poison = 0;
    WEFT_UNROLL for (int lane = 0; lane < PackedLanes::kLanes; ++lane) {
      if (lane >= lanes.count) continue;
      float const value = values.state[which][lane];
      float const magnitude = std::fabs(value);
      if (magnitude > largest) largest = magnitude;
      poison += value * 0.0F;  // NaN where not finite
    }
    shared.largest[which][thread] = largest;
    shared.poison[which][thread] = poison;
  }
}

/// Packs a thread's states again, after all threads have called note().
template <typename Rule>
WEFT_KERNEL void pack_again(UpdateTensor const& tensor, PackedLanes const& lanes,
                            PackedValues<Rule::kStates> const& values, PackedShared const& shared, unsigned thread,
                            std::uint32_t seed) {
  if (lanes.count == 0) return;
  unsigned const from = thread / PackedLanes::kThreadsOfBlock * PackedLanes::kThreadsOfBlock;
  WEFT_UNROLL for (int which = 0; which < Rule::kStates; ++which) {
    float largest = 0;
    float poison = 0;
    for (unsigned k = from; k < from + PackedLanes::kThreadsOfBlock; ++k) {
      if (shared.largest[which][k] > largest) largest = shared.largest[which][k];
      poison += shared.poison[which][k];
    }
    bool const finite = poison == 0;
    float const scale = finite ? largest : poison;
    if (thread == from) tensor.scales[which][lanes.block()] = scale;
    float const inverse = block_state::inverse_of(scale);
    std::uint32_t const own =
        block_seed(seed, lanes.block() * kStateBlock, Rule::kStates, static_cast<std::size_t>(which));
    Word8 two{0, 0};
    WEFT_UNROLL for (int lane = 0; lane < PackedLanes::kLanes; ++lane) {
      std::uint32_t byte = 0xFF;
      if (finite)
        byte = block_state::pack(code_of<Rule>(which), values.state[which][lane], inverse, own, lanes.in_block(lane));
      (lane < 4 ? two.x : two.y) |= byte << (8 * (lane % 4));
    }
    lanes.store(tensor.packed[which], two);
  }
}

/// Like UpdateBody, but with states of one byte: unpacks, updates and packs again, 2,048 elements at a time.
template <typename Rule>
struct PackedUpdateBody {
  using Traits = RuleTraits<Rule>;
  static constexpr unsigned kThreads = 256;
  static constexpr int kStates = Rule::kStates;
  using Shared = PackedShared;

  UpdateTable table;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
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
    std::uint32_t const seed = tensor_seed(scalars.step, tensor.index);
    typename Block::template PerThread<PackedValues<kStates>> values;
    typename Block::template PerThread<Rule> rules;
    block.each_thread([&](unsigned t) { rules[t] = make_rule<Rule>(scalars, table.tensor_norms + chunk.tensor); });
    for (std::uint32_t from = 0; from < chunk.count; from += kThreads * PackedLanes::kLanes) {
      block.each_thread([&](unsigned t) {
        auto const lanes = lanes_of(chunk, from, t);
        update(tensor, range, rules[t], scalars.use, chunk, lanes, values[t]);
        if constexpr (Traits::kWritesStates) note(lanes, values[t], shared, t);
      });
      if constexpr (Traits::kWritesStates) {
        block.each_thread(
            [&](unsigned t) { pack_again<Rule>(tensor, lanes_of(chunk, from, t), values[t], shared, t, seed); });
      }
    }
    if constexpr (Traits::kSums) sum_chunk(block, rules, shared.sums, *table.norms_of(tensor, chunk));
  }

 private:
  static WEFT_KERNEL PackedLanes lanes_of(Chunk const& chunk, std::uint32_t from, unsigned thread) {
    std::uint32_t const i = from + thread * PackedLanes::kLanes;
    std::uint32_t const left = i < chunk.count ? chunk.count - i : 0;
    return {chunk.first + i, static_cast<int>(left < PackedLanes::kLanes ? left : PackedLanes::kLanes)};
  }

  WEFT_KERNEL void update(UpdateTensor const& tensor, UpdateRange const& range, Rule& rule, GradientUse const& use,
                          Chunk const& chunk, PackedLanes const& lanes, PackedValues<kStates>& values) const {
    if (lanes.count == 0) return;
    WEFT_UNROLL for (int which = 0; which < kStates; ++which) {
      lanes.load(tensor.packed[which], code_of<Rule>(which), tensor.scales[which][lanes.block()], values.state[which]);
    }
    auto const i = static_cast<std::uint32_t>(lanes.first - chunk.first);
    if (lanes.count == PackedLanes::kLanes) return update_lanes<PackedLanes::kLanes>(range, rule, use, i, values, 0);
    WEFT_UNROLL for (int lane = 0; lane < PackedLanes::kLanes; ++lane) {
      if (lane < lanes.count) {
        update_lanes<1>(range, rule, use, i + static_cast<std::uint32_t>(lane), values, lane);
      }
    }
  }

  template <int kLanes>
  WEFT_KERNEL void update_lanes(UpdateRange const& range, Rule& rule, GradientUse const& use, std::uint32_t i,
                                PackedValues<kStates>& values, int first) const {
    auto const raw_p = range.computed.template load<kLanes>(i);
    RawLanes<kLanes> raw_g{};
    if constexpr (Traits::kReadsGradient) raw_g = range.gradient.template load<kLanes>(i);
    auto p = widen(raw_p, range.computed.type);
    auto const g = widen(raw_g, Traits::kReadsGradient ? range.gradient.type : DataType::f32);
    WEFT_UNROLL for (int lane = 0; lane < kLanes; ++lane) {
      float own[kStates];
      for (int k = 0; k < kStates; ++k) own[k] = values.state[k][first + lane];
      p.x[lane] = rule(p.x[lane], use(g.x[lane]), own);
      for (int k = 0; k < kStates; ++k) values.state[k][first + lane] = own[k];
    }
    if constexpr (Traits::kWrites) range.write_parameter(p, i);
    if (Traits::kReadsGradient && table.zero) range.gradient.store(Lanes<kLanes>{}, i);
  }
};

}  // namespace weft::kernels::cuda
