#include "weft/convert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/optim/gradients.hpp"
#include "optim/cuda/on_gpu.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

void check(ConstBufferView const& view, char const* which) {
  if (!is_valid(view.dtype) || !is_floating_point(view.dtype) || view.device.type != DeviceType::cpu) {
    throw Error(ErrorCode::unsupported, fmt::format("convert: {} is {} on {}; takes real floating-point types on cpu",
                                                    which, to_string(view.dtype), to_string(view.device)));
  }
  if (view.count != 0 && view.data == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("convert: {} has {} elements but no memory", which, view.count));
  }
}

bool has_kernel(DataType dtype) {
  return dtype == DataType::f32 || dtype == DataType::bf16 || dtype == DataType::f16;
}

template <typename From, typename To, typename Convert>
void convert_each(void const* from, void* to, std::size_t count, Convert const& convert_one) {
  std::transform(static_cast<From const*>(from), static_cast<From const*>(from) + count, static_cast<To*>(to),
                 convert_one);
}

void widen(ConstBufferView const& from, float* to) {
  switch (from.dtype) {
    case DataType::f64:
      return convert_each<double, float>(from.data, to, from.count, [](double x) { return static_cast<float>(x); });
    case DataType::f8e4m3:
      return convert_each<Float8E4M3, float>(from.data, to, from.count, [](Float8E4M3 x) { return to_float(x); });
    case DataType::f8e5m2:
      return convert_each<Float8E5M2, float>(from.data, to, from.count, [](Float8E5M2 x) { return to_float(x); });
    default: return kernels::convert(from.data, from.dtype, to, DataType::f32, from.count);
  }
}

void narrow(float const* from, BufferView const& to) {
  switch (to.dtype) {
    case DataType::f64: return convert_each<float, double>(from, to.data, to.count, [](float x) { return double{x}; });
    case DataType::f8e4m3: return convert_each<float, Float8E4M3>(from, to.data, to.count, to_float8_e4m3);
    case DataType::f8e5m2: return convert_each<float, Float8E5M2>(from, to.data, to.count, to_float8_e5m2);
    default: return kernels::convert(from, DataType::f32, to.data, to.dtype, to.count);
  }
}

// Converts rare types by way of f32, a piece at a time.
void convert_through_f32(ConstBufferView const& from, BufferView const& to) {
  std::array<float, 1024> piece;
  for (std::size_t first = 0; first < to.count; first += piece.size()) {
    std::size_t const count = std::min(piece.size(), to.count - first);
    auto const* const source = static_cast<std::byte const*>(from.data) + first * size_of(from.dtype);
    widen({source, count, from.dtype}, piece.data());
    narrow(piece.data(), to.slice(first, count));
  }
}

}  // namespace

void convert(ConstBufferView from, BufferView to) {
#ifdef WEFT_CUDA_TRAINING
  if (from.device.type == DeviceType::cuda || to.device.type == DeviceType::cuda) {
    // `from` is only read.
    return cuda::on_gpu::convert({const_cast<void*>(from.data), from.count, from.dtype, from.device}, to);
  }
#endif
  check(from, "the source");
  check(to, "the destination");
  if (from.count != to.count) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("convert: {} elements do not fit into {}", from.count, to.count));
  }
  if (has_kernel(from.dtype) && has_kernel(to.dtype)) {
    return kernels::convert(from.data, from.dtype, to.data, to.dtype, to.count);
  }
  if (from.dtype != to.dtype) return convert_through_f32(from, to);
  if (to.count != 0) std::memcpy(to.data, from.data, to.bytes());
}

}  // namespace weft
