#include "kernels/cpu/layers/layers.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layers/bias_dropout.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include "kernels/cpu/layers/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

using D64 = hn::Repartition<std::uint64_t, DF>;
using V64 = hn::Vec<D64>;

/// kernels::philox() of one counter per 64-bit lane; each of the four words is in the low half of its lane.
struct PhiloxVectors {
  V64 word[4];

  static HWY_INLINE PhiloxVectors of(V64 group, std::uint64_t key) {
    D64 const d;
    DU32 const halves;
    V64 const low = hn::Set(d, 0xFFFFFFFFULL);
    auto const multiplier = [&](std::uint32_t value) { return hn::BitCast(halves, hn::Set(d, value)); };
    auto const first = multiplier(0xD2511F53U);
    auto const second = multiplier(0xCD9E8D57U);
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    PhiloxVectors c{{hn::And(group, low), hn::ShiftRight<32>(group), hn::Zero(d), hn::Zero(d)}};
    for (int round = 0; round < 10; ++round) {
      V64 const a = hn::MulEven(first, hn::BitCast(halves, c.word[0]));
      V64 const b = hn::MulEven(second, hn::BitCast(halves, c.word[2]));
      c = {{hn::Xor(hn::Xor(hn::ShiftRight<32>(b), c.word[1]), hn::Set(d, key0)), hn::And(b, low),
            hn::Xor(hn::Xor(hn::ShiftRight<32>(a), c.word[3]), hn::Set(d, key1)), hn::And(a, low)}};
      key0 += 0x9E3779B9U;
      key1 += 0xBB67AE85U;
    }
    return c;
  }
};

/// The random words of consecutive elements, in order.
class Words {
 public:
  static constexpr std::size_t kMost = 1024;

  explicit Words(std::uint64_t seed) : seed_(seed) {}

  /// The words of elements [first, first + count), count at most kMost. Words behind them may also be read.
  HWY_INLINE std::uint32_t const* of(std::uint64_t first, std::size_t count) {
    D64 const d;
    auto const groups = hn::Lanes(d);
    std::uint64_t const begin = first / 4;
    std::uint64_t const end = (first + count + 3) / 4;
    auto* to = reinterpret_cast<std::uint64_t*>(words_);
    for (std::uint64_t group = begin; group < end; group += groups, to += 2 * groups) {
      auto const words = PhiloxVectors::of(hn::Iota(d, group), seed_);
      // Little-endian: the lower word is the first of the two.
      auto const one = hn::Or(words.word[0], hn::ShiftLeft<32>(words.word[1]));
      auto const other = hn::Or(words.word[2], hn::ShiftLeft<32>(words.word[3]));
      hn::StoreInterleaved2(one, other, d, to);
    }
    return words_ + first % 4;
  }

 private:
  std::uint64_t seed_;
  HWY_ALIGN std::uint32_t words_[kMost + 8 + 4 * hn::MaxLanes(DF())] = {};
};

/// Calls f(row's first element in the part's matrix, column, Whole or Part, factors) over all rows.
template <typename F>
HWY_INLINE void each_with_factors(DropoutChoice const& choice, std::size_t rows, std::size_t width, F&& f) {
  DU32 const du;
  DI32 const di;
  // Vector comparisons are signed, so the top bit is flipped on both sides.
  auto const flip = hn::Set(du, 0x80000000U);
  auto const threshold = hn::BitCast(di, hn::Set(du, choice.threshold ^ 0x80000000U));
  auto const scale = hn::Set(DF(), choice.scale);
  Words words(choice.seed);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t first = 0; first < width; first += Words::kMost) {
      std::size_t const count = std::min(Words::kMost, width - first);
      auto const* const mine = words.of(choice.first + row * width + first, count);
      each_vector(count, [&](std::size_t i, auto part) {
        auto const moved = hn::BitCast(di, hn::Xor(hn::LoadU(du, mine + i), flip));
        auto const dropped = hn::RebindMask(DF(), hn::Lt(moved, threshold));
        f(row * width, first + i, part, hn::IfThenElse(dropped, hn::Zero(DF()), scale));
      });
    }
  }
}

void bias_dropout_add_kernel(void* y, void const* x, float const* bias, void const* residual,
                             DropoutChoice const& choice, MatrixShape const& shape) {
  with_type(shape.type, [&](auto type) {
    using Type = decltype(type);
    using Stored = typename Type::Stored;
    each_with_factors(choice, shape.rows, shape.width, [&](std::size_t row, std::size_t i, auto part, VF factors) {
      VF const in = hn::Add(part.template load<Type>(static_cast<Stored const*>(x) + row + i),
                            part.template load<Floats>(bias + i));
      VF const beside = part.template load<Type>(static_cast<Stored const*>(residual) + row + i);
      part.template store<Type>(hn::MulAdd(in, factors, beside), static_cast<Stored*>(y) + row + i);
    });
  });
}

void bias_dropout_gradient_kernel(void* dx, void const* dy, float* dbias, DropoutChoice const& choice,
                                  MatrixShape const& shape) {
  with_type(shape.type, [&](auto type) {
    using Type = decltype(type);
    using Stored = typename Type::Stored;
    each_with_factors(choice, shape.rows, shape.width, [&](std::size_t row, std::size_t i, auto part, VF factors) {
      VF const g = hn::Mul(part.template load<Type>(static_cast<Stored const*>(dy) + row + i), factors);
      part.template store<Floats>(hn::Add(g, part.template load<Floats>(dbias + i)), dbias + i);
      part.template store<Type>(g, static_cast<Stored*>(dx) + row + i);
    });
  });
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(bias_dropout_add_kernel);
HWY_EXPORT(bias_dropout_gradient_kernel);

void bias_dropout_add(void* y, void const* x, float const* bias, void const* residual, DropoutChoice const& choice,
                      MatrixShape const& shape) {
  HWY_DYNAMIC_DISPATCH(bias_dropout_add_kernel)(y, x, bias, residual, choice, shape);
}

void bias_dropout_gradient(void* dx, void const* dy, float* dbias, DropoutChoice const& choice,
                           MatrixShape const& shape) {
  HWY_DYNAMIC_DISPATCH(bias_dropout_gradient_kernel)(dx, dy, dbias, choice, shape);
}

}  // namespace weft::kernels
#endif
