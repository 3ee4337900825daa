#include "collectives/nccl/nccl_types.hpp"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "collectives/host_order.hpp"
#include "weft/error.hpp"

namespace weft::nccl {
namespace {

std::optional<ncclDataType_t> type_of(DataType dtype) noexcept {
  switch (dtype) {
    case DataType::i8: return ncclInt8;
    case DataType::u8: return ncclUint8;
    case DataType::i32: return ncclInt32;
    case DataType::u32: return ncclUint32;
    case DataType::i64: return ncclInt64;
    case DataType::u64: return ncclUint64;
    case DataType::f16: return ncclFloat16;
    case DataType::bf16: return ncclBfloat16;
    case DataType::f32: return ncclFloat32;
    case DataType::f64: return ncclFloat64;
    case DataType::f8e4m3: return ncclFloat8e4m3;
    case DataType::f8e5m2: return ncclFloat8e5m2;
    case DataType::c64:
    case DataType::c128:
    case DataType::boolean:
    case DataType::i16:
    case DataType::u16: break;
  }
  return std::nullopt;
}

std::optional<ncclRedOp_t> operator_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::premul_sum: return ncclSum;
    case ReduceOp::avg: return ncclAvg;
    case ReduceOp::prod: return ncclProd;
    case ReduceOp::min: return ncclMin;
    case ReduceOp::max: return ncclMax;
    default: return std::nullopt;
  }
}

/// Booleans are 0 or 1, so their maximum is their "or" and their minimum their "and".
std::optional<ncclRedOp_t> boolean_operator_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::lor:
    case ReduceOp::bor: return ncclMax;
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::land:
    case ReduceOp::band: return ncclMin;
    default: return std::nullopt;
  }
}

[[noreturn]] void refuse(Call const& call, std::string const& advice) {
  throw Error(ErrorCode::unsupported, fmt::format("NCCL has no {} of {}; {}", to_string(call.contract.reduce),
                                                  to_string(call.contract.dtype), advice));
}

bool reduces(Operation operation) noexcept {
  switch (operation) {
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::reduce_scatter:
    case Operation::reduce_scatter_v: return true;
    default: return false;
  }
}

}  // namespace

Elements elements_to_move(DataType dtype) noexcept {
  if (auto const type = type_of(dtype)) return {*type, 1};
  return {ncclUint8, size_of(dtype)};
}

ReducedElements elements_to_reduce(Call const& call) {
  auto const dtype = call.contract.dtype;
  auto const reduce = call.contract.reduce;
  if (auto const type = type_of(dtype)) {
    if (auto const op = operator_of(reduce)) return {{*type, 1}, *op};
    refuse(call, "copy the buffer to host memory and reduce it there");
  }
  if (dtype == DataType::boolean) {
    if (auto const op = boolean_operator_of(reduce)) return {{ncclUint8, 1}, *op};
    refuse(call, "reduce it as u8 by sum, or copy it to host memory");
  }
  auto const by_parts = reduce == ReduceOp::sum || reduce == ReduceOp::avg || reduce == ReduceOp::premul_sum;
  if (is_complex(dtype) && by_parts) {
    return {{dtype == DataType::c64 ? ncclFloat32 : ncclFloat64, 2}, *operator_of(reduce)};
  }
  refuse(call, is_complex(dtype) ? "copy the buffer to host memory and reduce it there"
                                 : "convert it to i32, or copy it to host memory");
}

void check_supported(Call const& call, Reproducibility reproducibility) {
  auto const operation = call.contract.operation;
  if (operation == Operation::scan || operation == Operation::exscan) {
    throw Error(ErrorCode::unsupported,
                fmt::format("NCCL has no {}; copy the buffer to host memory and scan it there", to_string(operation)));
  }
  if (!reduces(operation)) return;
  static_cast<void>(elements_to_reduce(call));
  if (reproducibility == Reproducibility::bitwise && !is_exact(call.contract.dtype, call.contract.reduce)) {
    refuse(call,
           "Reproducibility::bitwise asks for an order of additions that NCCL does not keep; reduce in host "
           "memory, or use run_to_run");
  }
}

Scalar scalar_of(double scale, ncclDataType_t type) noexcept {
  Scalar scalar{};
  auto const set = [&](auto value) { std::memcpy(scalar.bytes, &value, sizeof value); };
  auto const narrow = static_cast<float>(scale);
  switch (type) {
    case ncclInt8: set(static_cast<std::int8_t>(scale)); break;
    case ncclUint8: set(static_cast<std::uint8_t>(scale)); break;
    case ncclInt32: set(static_cast<std::int32_t>(scale)); break;
    case ncclUint32: set(static_cast<std::uint32_t>(scale)); break;
    case ncclInt64: set(static_cast<std::int64_t>(scale)); break;
    case ncclUint64: set(static_cast<std::uint64_t>(scale)); break;
    case ncclFloat16: set(to_half(narrow)); break;
    case ncclBfloat16: set(to_bfloat16(narrow)); break;
    case ncclFloat32: set(narrow); break;
    case ncclFloat8e4m3: set(to_float8_e4m3(narrow)); break;
    case ncclFloat8e5m2: set(to_float8_e5m2(narrow)); break;
    default: set(scale); break;
  }
  return scalar;
}

}  // namespace weft::nccl
