#include "checkpoint/convert.hpp"

#include <cstring>

namespace weft {
namespace {

float widen(float value) {
  return value;
}
float widen(double value) {
  return static_cast<float>(value);
}
template <typename Narrow>
float widen(Narrow value) {
  return to_float(value);
}

template <typename To>
To narrow(float value);
template <>
float narrow(float value) {
  return value;
}
template <>
double narrow(float value) {
  return value;
}
template <>
Half narrow(float value) {
  return to_half(value);
}
template <>
BFloat16 narrow(float value) {
  return to_bfloat16(value);
}
template <>
Float8E4M3 narrow(float value) {
  return to_float8_e4m3(value);
}
template <>
Float8E5M2 narrow(float value) {
  return to_float8_e5m2(value);
}

template <typename From, typename To>
void convert_as(void const* from, void* to, std::size_t count) {
  auto const* source = static_cast<std::byte const*>(from);  // of a file: perhaps not aligned
  auto* target = static_cast<std::byte*>(to);
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, source + i * sizeof(From), sizeof value);
    To const converted = narrow<To>(widen(value));
    std::memcpy(target + i * sizeof(To), &converted, sizeof converted);
  }
}

template <typename Visit>
void visit_float(DataType type, Visit const& visit) {
  switch (type) {
    case DataType::f16: return visit(Half{});
    case DataType::bf16: return visit(BFloat16{});
    case DataType::f32: return visit(float{});
    case DataType::f64: return visit(double{});
    case DataType::f8e4m3: return visit(Float8E4M3{});
    case DataType::f8e5m2: return visit(Float8E5M2{});
    default: return;
  }
}

}  // namespace

bool is_convertible(DataType from, DataType to) noexcept {
  return from == to || (is_floating_point(from) && is_floating_point(to));
}

void convert_elements(void const* from, DataType from_type, void* to, DataType to_type, std::size_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, count * size_of(to_type));
    return;
  }
  visit_float(from_type, [&](auto source) {
    visit_float(to_type, [&](auto target) { convert_as<decltype(source), decltype(target)>(from, to, count); });
  });
}

}  // namespace weft
