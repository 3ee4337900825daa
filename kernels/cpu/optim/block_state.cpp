#include "kernels/cpu/optim/block_state.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optim/block_state.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

using VF = hn::Vec<DF>;
using block_state::kPositiveSteps;
using block_state::kSignedSteps;
using block_state::kZeroStep;

// Blocks are padded with zeros to whole vectors.

VF unpacked(StateCode code, VF steps, VF scale) {
  DF const d;
  if (code == StateCode::signed_squares) {
    auto const root = hn::Div(hn::Sub(steps, hn::Set(d, kZeroStep)), hn::Set(d, kSignedSteps));
    return hn::Mul(hn::Mul(hn::Abs(root), root), scale);
  }
  auto const root = hn::Div(steps, hn::Set(d, kPositiveSteps));
  auto const square = hn::Mul(root, root);
  return hn::Mul(hn::Mul(square, square), scale);
}

/// block_state::random_number() of each element from `first` on.
VF random_numbers(std::uint32_t seed, std::size_t first) {
  DF const d;
  DU32 const words;
  // Multiplications and shifts that mix all bits (the finaliser of Appleby's MurmurHash3, public domain).
  auto x = hn::Add(hn::Iota(words, static_cast<std::uint32_t>(first)), hn::Set(words, seed * 0x9E3779B9U));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(words, 0x85EBCA6BU));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<13>(x)), hn::Set(words, 0xC2B2AE35U));
  auto const bits = hn::ShiftRight<9>(hn::Xor(x, hn::ShiftRight<16>(x)));
  return hn::Mul(hn::ConvertTo(d, hn::BitCast(DI32(), bits)), hn::Set(d, 0x1p-23F));
}

/// (steps + 1)² − steps², or the same with fourth powers.
VF gap_above(bool squares, VF steps) {
  DF const d;
  auto const one = hn::Set(d, 1.0F);
  if (squares) return hn::MulAdd(hn::Set(d, 2.0F), steps, one);
  auto const inner = hn::MulAdd(hn::Set(d, 4.0F), steps, hn::Set(d, 6.0F));
  return hn::MulAdd(steps, hn::MulAdd(steps, inner, hn::Set(d, 4.0F)), one);
}

/// block_state::pack() on a vector: the same operations in the same order.
VF packed_steps(StateCode code, VF value, VF inverse, std::uint32_t seed, std::size_t first) {
  DF const d;
  bool const squares = code == StateCode::signed_squares;
  auto const ratio = hn::Mul(hn::Abs(value), inverse);
  auto const most = hn::Set(d, squares ? kSignedSteps : kPositiveSteps);
  auto const root = squares ? hn::Sqrt(ratio) : hn::Sqrt(hn::Sqrt(ratio));
  VF steps;
  if (seed == kNearest) {
    steps = hn::Floor(hn::MulAdd(root, most, hn::Set(d, 0.5F)));
  } else {
    steps = hn::Floor(hn::Mul(root, most));
    auto const square = hn::Mul(steps, steps);
    auto const power = squares ? square : hn::Mul(square, square);
    auto const whole = hn::Set(d, squares ? block_state::kSignedPower : block_state::kPositivePower);
    auto const rest = hn::MulSub(ratio, whole, power);
    auto const up = hn::Lt(hn::Mul(random_numbers(seed, first), gap_above(squares, steps)), rest);
    steps = hn::IfThenElse(up, hn::Add(steps, hn::Set(d, 1.0F)), steps);
  }
  steps = hn::Min(steps, most);
  if (squares) return hn::Add(hn::CopySign(steps, value), hn::Set(d, kZeroStep));
  auto const zero = hn::Eq(value, hn::Zero(d));
  return hn::IfThenElse(zero, hn::Zero(d), hn::Max(steps, hn::Set(d, 1.0F)));
}

float pack_kernel(StateCode code, float const* values, std::size_t count, std::uint32_t seed, std::uint8_t* packed) {
  DF const d;
  DU8 const bytes;
  auto const n = hn::Lanes(d);
  HWY_ALIGN float padded[kStateBlock + hn::MaxLanes(DF())] = {};
  std::memcpy(padded, values, count * sizeof(float));
  auto largest = hn::Zero(d);
  auto poison = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += n) {
    auto const value = hn::Load(d, padded + i);
    largest = hn::Max(largest, hn::Abs(value));
    poison = hn::MulAdd(value, hn::Zero(d), poison);
  }
  float const scale = hn::GetLane(hn::MaxOfLanes(d, largest)) + hn::GetLane(hn::SumOfLanes(d, poison));
  if (!std::isfinite(scale)) {
    std::memset(packed, 0xFF, count);
    return scale;
  }
  auto const inverse = hn::Set(d, block_state::inverse_of(scale));
  HWY_ALIGN std::uint8_t out[kStateBlock + hn::MaxLanes(DF())];
  for (std::size_t i = 0; i < count; i += n) {
    auto const steps = packed_steps(code, hn::Load(d, padded + i), inverse, seed, i);
    hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(DI32(), steps)), bytes, out + i);
  }
  std::memcpy(packed, out, count);
  return scale;
}

void unpack_kernel(StateCode code, std::uint8_t const* packed, float scale, std::size_t count, float* values) {
  DF const d;
  DU8 const bytes;
  auto const n = hn::Lanes(d);
  HWY_ALIGN std::uint8_t padded[kStateBlock + hn::MaxLanes(DF())] = {};
  std::memcpy(padded, packed, count);
  HWY_ALIGN float out[kStateBlock + hn::MaxLanes(DF())];
  auto const by = hn::Set(d, scale);
  for (std::size_t i = 0; i < count; i += n) {
    auto const steps = hn::ConvertTo(d, hn::PromoteTo(DI32(), hn::LoadU(bytes, padded + i)));
    hn::Store(unpacked(code, steps, by), d, out + i);
  }
  std::memcpy(values, out, count * sizeof(float));
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(pack_kernel);
HWY_EXPORT(unpack_kernel);

float pack_state(StateCode code, float const* values, std::size_t count, std::uint32_t seed, std::uint8_t* packed) {
  return HWY_DYNAMIC_DISPATCH(pack_kernel)(code, values, count, seed, packed);
}

void unpack_state(StateCode code, std::uint8_t const* packed, float scale, std::size_t count, float* values) {
  HWY_DYNAMIC_DISPATCH(unpack_kernel)(code, packed, scale, count, values);
}

}  // namespace weft::kernels
#endif
