#pragma once

#include "kernels/cuda/model/matrix.hpp"
#include "kernels/math/philox.hpp"

namespace weft::kernels::cuda {

/// Which elements are dropped: element e = row·width + column of a call is kept if word e mod 4 of
/// philox({⌊e/4⌋ low, ⌊e/4⌋ high, call, step}, seed) is at least p·2³². Backward computes this again; no mask is kept.
struct Dropout {
  std::uint64_t seed = 0;
  std::uint32_t call = 0;                  ///< different for each dropout of a step
  std::uint32_t const* step = nullptr;     ///< in device memory, so that each replay of a graph differs; null: 0
  std::uint32_t threshold = 0;             ///< p·2³²
  float scale = 1;                         ///< of what is kept: 1/(1 − p)
  std::uint64_t const* seed_at = nullptr;  ///< in device memory; if not null, it is used instead of `seed`

  /// @param p in [0, 1)
  static Dropout with(double p, std::uint64_t seed, std::uint32_t call, std::uint32_t const* step) {
    return {seed, call, step, static_cast<std::uint32_t>(p * 4294967296.0), static_cast<float>(1 / (1 - p)), nullptr};
  }

  /// The factors of elements [e, e + kLanes): 0 or `scale`.
  template <int kLanes>
  WEFT_KERNEL Lanes<kLanes> factors(std::uint64_t e) const {
    Lanes<kLanes> lanes;
    if constexpr (kLanes % 4 == 0) {
      if (e % 4 == 0) {  // only whole groups of four words
        WEFT_UNROLL for (int k = 0; k < kLanes; k += 4) {
          Random4 const words = draw(e / 4 + k / 4);
          WEFT_UNROLL for (int i = 0; i < 4; ++i) lanes.x[k + i] = words.word[i] >= threshold ? scale : 0.0F;
        }
        return lanes;
      }
    }
    std::uint64_t group = e / 4;
    Random4 words = draw(group);
    WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
      if ((e + k) / 4 != group) words = draw(++group);
      lanes.x[k] = word(words, static_cast<unsigned>((e + k) % 4)) >= threshold ? scale : 0.0F;
    }
    return lanes;
  }

 private:
  [[nodiscard]] WEFT_KERNEL Random4 draw(std::uint64_t group) const {
    return philox({{static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), call,
                    step != nullptr ? *step : 0U}},
                  seed_at != nullptr ? *seed_at : seed);
  }
  // No array index: that would move the words from registers to memory.
  static WEFT_KERNEL std::uint32_t word(Random4 const& words, unsigned which) {
    std::uint32_t const low = which == 0 ? words.word[0] : words.word[1];
    std::uint32_t const high = which == 2 ? words.word[2] : words.word[3];
    return which < 2 ? low : high;
  }
};

/// y = residual + dropout(x + b); one block per row. b may be null.
struct BiasDropoutAddBody {
  static constexpr unsigned kThreads = 256;
  using Shared = Nothing;

  TensorPointer y, x, b, residual;
  Dropout dropout;
  std::uint32_t width = 0;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    with_constant_type(x.type, y.type == x.type && residual.type == x.type, [&](auto const& type_of) {
      BiasDropoutAddBody{
          {y.data, type_of(y)}, {x.data, type_of(x)}, b, {residual.data, type_of(residual)}, dropout, width}
          .run(block);
    });
  }

 private:
  template <typename Block>
  WEFT_KERNEL void run(Block& block) const {
    std::uint64_t const row = block.index();
    Array const in = row_of(x, row, width);
    Array const beside = row_of(residual, row, width);
    Array const out = row_of(y, row, width);
    block.each_thread([&](unsigned t) {
      for_each_group<kThreads, kGroup>(t, width, [&](auto lanes, std::uint32_t i) {
        constexpr int kLanes = decltype(lanes)::kLanes;
        auto values = load<kLanes>(in, i);
        auto const others = load<kLanes>(beside, i);
        auto const biases = load_or_zero<kLanes>(b, i);
        auto const factors = dropout.template factors<kLanes>(row * width + i);
        WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
          values.x[k] = std::fma(values.x[k] + biases.x[k], factors.x[k], others.x[k]);
        }
        out.store(values, i);
      });
    });
  }
};

/// For ColumnSumsBody: writes dx = dropout's factor·dy and sums b's gradient. The residual's gradient is dy.
struct BiasDropoutGradient {
  static constexpr int kOutputs = 1;
  TensorPointer dx, dy;
  Dropout dropout;

  template <int kLanes>
  using Inputs = RawLanes<kLanes>;

  [[nodiscard]] WEFT_KERNEL DataType type() const { return dy.type; }
  [[nodiscard]] WEFT_KERNEL bool of_one_type() const { return dx.type == dy.type; }
  template <typename TypeOf>
  [[nodiscard]] WEFT_KERNEL BiasDropoutGradient typed(TypeOf const& type_of) const {
    return {{dx.data, type_of(dx)}, {dy.data, type_of(dy)}, dropout};
  }

  template <int kLanes>
  [[nodiscard]] WEFT_KERNEL Inputs<kLanes> load(std::uint64_t row, std::uint32_t width, std::uint32_t i) const {
    return row_of(dy, row, width).template load<kLanes>(i);
  }
  template <int kLanes>
  WEFT_KERNEL void visit(Inputs<kLanes> const& in, std::uint64_t row, std::uint32_t width, std::uint32_t i,
                         Lanes<kLanes>* sums) const {
    auto g = widen(in, dy.type);
    auto const factors = dropout.template factors<kLanes>(row * width + i);
    WEFT_UNROLL for (int k = 0; k < kLanes; ++k) {
      g.x[k] *= factors.x[k];
      sums[0].x[k] += g.x[k];
    }
    row_of(dx, row, width).store(g, i);
  }
};

}  // namespace weft::kernels::cuda
