#include "kernels/cpu/optim/gradients.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optim/gradients.cpp"
#include <hwy/foreach_target.h>
//
#include <cmath>

#include "kernels/cpu/optim/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

/// The last, partly filled vector, padded with zeros.
template <typename Body>
void with_partial(Elements const& elements, std::size_t first, std::size_t count, bool write, Body&& body) {
  HWY_ALIGN std::byte copy[hn::MaxLanes(DF()) * sizeof(float)] = {};
  auto const size = size_of(elements.type);
  std::memcpy(copy, elements.data + first * size, count * size);
  body(Elements{copy, elements.type}, 0);
  if (write) std::memcpy(elements.data + first * size, copy, count * size);
}

/// Elements of a page of f32. Hardware prefetchers stop at page ends and follow several streams better than one, so
/// reading walks four pages side by side.
constexpr std::size_t kPage = 4096 / sizeof(float);

/// The measures of a range so far, in several independent chains, so that additions do not wait for one another.
struct Measured {
  VF largest;
  VF poison;  // what is not finite times zero is NaN
  VF squares;

  static HWY_INLINE Measured nothing() { return {hn::Zero(DF()), hn::Zero(DF()), hn::Zero(DF())}; }
  HWY_INLINE void add(VF g) {
    poison = hn::MulAdd(g, hn::Zero(DF()), poison);
    largest = hn::Max(largest, hn::Abs(g));
    squares = hn::MulAdd(g, g, squares);
  }
  HWY_INLINE void add(Measured const& other) {
    poison = hn::Add(poison, other.poison);
    largest = hn::Max(largest, other.largest);
    squares = hn::Add(squares, other.squares);
  }
};

template <typename Load>
GradientMeasure measure_with(Elements const& elements, std::size_t count, float factor, Load const& load) {
  DF const d;
  auto const scale = hn::Set(d, factor);
  auto const n = hn::Lanes(d);
  Measured total = Measured::nothing();
  GradientMeasure result;
  auto const flush = [&] {
    result.sum_of_squares += hn::GetLane(hn::SumOfLanes(d, total.squares));
    total.squares = hn::Zero(d);
  };
  std::size_t i = 0;
  for (; i + 4 * kPage <= count; i += 4 * kPage) {
    Measured a = Measured::nothing();
    Measured b = Measured::nothing();
    Measured c = Measured::nothing();
    Measured e = Measured::nothing();
    for (std::size_t j = i; j < i + kPage; j += n) {
      a.add(hn::Mul(load(j), scale));
      b.add(hn::Mul(load(j + kPage), scale));
      c.add(hn::Mul(load(j + 2 * kPage), scale));
      e.add(hn::Mul(load(j + 3 * kPage), scale));
    }
    a.add(b);
    c.add(e);
    total.add(a);
    total.add(c);
    flush();
  }
  for (; i + n <= count; i += n) total.add(hn::Mul(load(i), scale));
  if (i < count) {
    with_partial(elements, i, count - i, false,
                 [&](Elements const& padded, std::size_t) { total.add(hn::Mul(padded.load(0), scale)); });
  }
  flush();
  result.largest = hn::GetLane(hn::MaxOfLanes(d, total.largest));
  result.finite = std::isfinite(hn::GetLane(hn::SumOfLanes(d, total.poison)));
  return result;
}

GradientMeasure measure_kernel(void const* data, std::size_t count, DataType type, float factor) {
  Elements const elements{static_cast<std::byte*>(const_cast<void*>(data)), type};  // only read
  auto const* const floats = static_cast<float const*>(data);
  auto const* const halves = static_cast<std::uint16_t const*>(data);
  switch (type) {
    case DataType::bf16:
      return measure_with(elements, count, factor,
                          [=](std::size_t i) { return Narrow<BFloat16Codec>::load(halves + i); });
    case DataType::f16:
      return measure_with(elements, count, factor, [=](std::size_t i) { return Narrow<HalfCodec>::load(halves + i); });
    default: return measure_with(elements, count, factor, [=](std::size_t i) { return hn::LoadU(DF(), floats + i); });
  }
}

std::uint32_t traffic_kernel(float const* data, std::size_t count) {
  DU32 const d;
  auto const n = hn::Lanes(d);
  auto const load = [=](std::size_t i) { return hn::BitCast(d, hn::LoadU(DF(), data + i)); };
  auto a = hn::Zero(d);
  auto b = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 4 * kPage <= count; i += 4 * kPage) {
    for (std::size_t j = i; j < i + kPage; j += n) {
      a = hn::Or(a, hn::Or(load(j), load(j + kPage)));
      b = hn::Or(b, hn::Or(load(j + 2 * kPage), load(j + 3 * kPage)));
    }
  }
  for (; i + n <= count; i += n) a = hn::Or(a, load(i));
  HWY_ALIGN std::uint32_t lanes[hn::MaxLanes(DU32())];
  hn::Store(hn::Or(a, b), d, lanes);
  std::uint32_t bits = 0;
  for (std::size_t lane = 0; lane < n; ++lane) bits |= lanes[lane];
  for (; i < count; ++i) {
    std::uint32_t one = 0;
    std::memcpy(&one, data + i, sizeof one);
    bits |= one;
  }
  return bits;
}

template <typename Change>
void change_all(void* data, std::size_t count, DataType type, Change const& change) {
  Elements const elements{static_cast<std::byte*>(data), type};
  auto const n = hn::Lanes(DF());
  auto const visit = [&](Elements const& at, std::size_t i) { at.store(change(at.load(i)), i); };
  std::size_t i = 0;
  for (; i + n <= count; i += n) visit(elements, i);
  if (i < count) with_partial(elements, i, count - i, true, visit);
}

void scale_kernel(void* data, std::size_t count, DataType type, float factor) {
  auto const by = hn::Set(DF(), factor);
  change_all(data, count, type, [by](VF value) { return hn::Mul(value, by); });
}

bool scale_and_check_kernel(void* data, std::size_t count, DataType type, float factor) {
  auto const by = hn::Set(DF(), factor);
  VF poison = hn::Zero(DF());
  change_all(data, count, type, [by, &poison](VF value) {
    poison = hn::MulAdd(value, hn::Zero(DF()), poison);
    return hn::Mul(value, by);
  });
  return std::isfinite(hn::GetLane(hn::SumOfLanes(DF(), poison)));
}

void clamp_kernel(void* data, std::size_t count, DataType type, float limit) {
  auto const most = hn::Set(DF(), limit);
  change_all(data, count, type, [most](VF value) { return clamp(value, most); });
}

void convert_kernel(void const* from, DataType from_type, void* to, DataType to_type, std::size_t count) {
  Elements const source{static_cast<std::byte*>(const_cast<void*>(from)), from_type};  // only read
  Elements const target{static_cast<std::byte*>(to), to_type};
  auto const n = hn::Lanes(DF());
  std::size_t i = 0;
  for (; i + n <= count; i += n) target.store(source.load(i), i);
  if (i == count) return;
  with_partial(source, i, count - i, false, [&](Elements const& padded, std::size_t) {
    auto const values = padded.load(0);
    with_partial(target, i, count - i, true, [&](Elements const& out, std::size_t) { out.store(values, 0); });
  });
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(measure_kernel);
HWY_EXPORT(traffic_kernel);
HWY_EXPORT(scale_kernel);
HWY_EXPORT(scale_and_check_kernel);
HWY_EXPORT(clamp_kernel);
HWY_EXPORT(convert_kernel);

GradientMeasure measure_gradient(void const* data, std::size_t count, DataType type, float factor) {
  auto measure = HWY_DYNAMIC_DISPATCH(measure_kernel)(data, count, type, factor);
  if (measure.finite && std::isinf(measure.sum_of_squares)) {
    // Up to 2^12 squares are added up in f32 before they become double: scaled by 2^−72, even those of the largest f32
    // stay in range, as 12 + 2·(128 − 72) is below 128.
    auto const smaller = HWY_DYNAMIC_DISPATCH(measure_kernel)(data, count, type, factor * 0x1p-72F);
    measure.sum_of_squares = smaller.sum_of_squares * 0x1p144;
  }
  return measure;
}

std::uint32_t gradient_traffic(float const* data, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(traffic_kernel)(data, count);
}

void scale(void* data, std::size_t count, DataType type, float factor) {
  HWY_DYNAMIC_DISPATCH(scale_kernel)(data, count, type, factor);
}

bool scale_and_check(void* data, std::size_t count, DataType type, float factor) {
  return HWY_DYNAMIC_DISPATCH(scale_and_check_kernel)(data, count, type, factor);
}

void clamp(void* data, std::size_t count, DataType type, float limit) {
  HWY_DYNAMIC_DISPATCH(clamp_kernel)(data, count, type, limit);
}

void convert(void const* from, DataType from_type, void* to, DataType to_type, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(convert_kernel)(from, from_type, to, to_type, count);
}

}  // namespace weft::kernels
#endif
