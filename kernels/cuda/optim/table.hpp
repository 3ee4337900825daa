#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/chunk.hpp"
#include "kernels/cuda/groups.hpp"
#include "kernels/cuda/lanes.hpp"
#include "kernels/cuda/optim/step.hpp"

namespace weft::kernels::cuda {

/// What an optimizer keeps about one parameter. States are f32 or packed.
struct UpdateTensor {
  void* parameter;
  float* master;  ///< the f32 copy that is updated, then rounded into `parameter`; null: `parameter` is updated itself
  float* state[3];
  std::uint8_t* packed[3];
  float* scales[3];  ///< one for every kStateBlock elements
  std::uint32_t group;
  std::uint32_t index;        ///< seeds the rounding of packed states
  std::uint32_t first_chunk;  ///< this tensor's first chunk among the table's
  std::uint32_t chunks;
  DataType parameter_type;
};

/// All parameters of an optimizer, in device memory.
struct UpdateTable {
  UpdateTensor const* tensors = nullptr;
  TensorPointer const* gradients = nullptr;
  GroupScalars const* groups = nullptr;
  Chunk const* chunks = nullptr;      ///< of this launch, one per block
  bool zero = false;                  ///< set gradients to zero after reading them
  LambNorms* chunk_norms = nullptr;   ///< of every chunk of the table
  LambNorms* tensor_norms = nullptr;  ///< of every tensor

  [[nodiscard]] WEFT_KERNEL LambNorms* norms_of(UpdateTensor const& tensor, Chunk const& chunk) const {
    return chunk_norms + tensor.first_chunk + chunk.first / kChunk;
  }
};

/// A block's part of a tensor.
struct UpdateRange {
  Array computed, rounded, gradient;
  float* state[3];
  std::uint32_t count;

  WEFT_KERNEL UpdateRange(UpdateTensor const& tensor, TensorPointer const& pointer, Chunk const& chunk)
      : computed(tensor.master != nullptr ? Array::from(tensor.master, DataType::f32, chunk.first)
                                          : Array::from(tensor.parameter, tensor.parameter_type, chunk.first)),
        rounded(Array::from(tensor.master != nullptr ? tensor.parameter : nullptr, tensor.parameter_type, chunk.first)),
        gradient(Array::from(pointer.data, pointer.type, chunk.first)),
        count(chunk.count) {
    for (int k = 0; k < 3; ++k) state[k] = tensor.state[k] != nullptr ? tensor.state[k] + chunk.first : nullptr;
  }

  [[nodiscard]] WEFT_KERNEL Array state_array(int k) const {
    return {reinterpret_cast<std::byte*>(state[k]), DataType::f32};
  }
  template <int kCount>
  WEFT_KERNEL void write_parameter(Lanes<kCount> const& p, std::uint32_t i) const {
    computed.store(p, i);
    if (rounded.data != nullptr) rounded.store(p, i);
  }
};

/// Sets `thread`'s part of the gradient to zero.
template <unsigned kThreads>
WEFT_KERNEL void zero_gradient(UpdateRange const& range, unsigned thread) {
  for_each_group<kThreads, 4>(thread, range.count, [&](auto width, std::uint32_t i) {
    range.gradient.store(Lanes<decltype(width)::kLanes>{}, i);
  });
}

/// Which memory a rule reads and writes, and whether it sums.
template <typename Rule>
struct RuleTraits {
  static constexpr bool kReadsGradient = true;
  static constexpr bool kWrites = true;
  static constexpr bool kWritesStates = true;
  static constexpr bool kSums = false;
};
template <>
struct RuleTraits<LambMomentsRule> {
  static constexpr bool kReadsGradient = true;
  static constexpr bool kWrites = false;
  static constexpr bool kWritesStates = true;
  static constexpr bool kSums = true;
};
template <>
struct RuleTraits<LambApplyRule> {
  static constexpr bool kReadsGradient = false;
  static constexpr bool kWrites = true;
  static constexpr bool kWritesStates = false;
  static constexpr bool kSums = false;
};

template <typename Rule>
WEFT_KERNEL Rule make_rule(GroupScalars const& s, LambNorms const* norms) {
  if constexpr (std::is_same_v<Rule, LambMomentsRule>) {
    return {s.lamb, {}};
  } else if constexpr (std::is_same_v<Rule, LambApplyRule>) {
    return {s.lamb, lamb_step_size(s.lr, *norms)};
  } else if constexpr (std::is_same_v<Rule, LionRule>) {
    return {s.lion};
  } else if constexpr (std::is_same_v<Rule, AdagradRule>) {
    return {s.adagrad};
  } else if constexpr (std::is_same_v<Rule, SgdRule<false>> || std::is_same_v<Rule, SgdRule<true>>) {
    return {s.sgd};
  } else {
    return {s.adam};
  }
}

/// The sums of a block's threads, for rules that sum.
struct SumsShared {
  LambNorms sums[256];
};

/// Adds up the sums of a block's threads and stores the result as its chunk's.
template <typename Block, typename Rules>
WEFT_KERNEL void sum_chunk(Block& block, Rules& rules, LambNorms* sums, LambNorms& chunk) {
  block.each_thread([&](unsigned t) { sums[t] = rules[t].sums; });
  combine_all<256>(block, sums, [](LambNorms const& a, LambNorms const& b) {
    return LambNorms{a.parameter + b.parameter, a.direction + b.direction};
  });
  block.each_thread([&](unsigned t) {
    if (t == 0) chunk = sums[0];
  });
}

}  // namespace weft::kernels::cuda
