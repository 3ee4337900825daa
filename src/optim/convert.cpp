#include "weft/convert.hpp"

#include <fmt/format.h>

#include "kernels/cpu/optim/gradients.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

void check(ConstBufferView const& view, char const* which) {
  bool const known = view.dtype == DataType::f32 || view.dtype == DataType::bf16 || view.dtype == DataType::f16;
  if (!known || view.device.type != DeviceType::cpu) {
    throw Error(ErrorCode::unsupported, fmt::format("convert: {} is {} on {}; takes f32, bf16 and f16 on cpu", which,
                                                    to_string(view.dtype), to_string(view.device)));
  }
  if (view.count != 0 && view.data == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("convert: {} has {} elements but no memory", which, view.count));
  }
}

}  // namespace

void convert(ConstBufferView from, BufferView to) {
  check(from, "the source");
  check(to, "the destination");
  if (from.count != to.count) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("convert: {} elements do not fit into {}", from.count, to.count));
  }
  kernels::convert(from.data, from.dtype, to.data, to.dtype, to.count);
}

}  // namespace weft
