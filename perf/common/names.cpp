#include "common/names.hpp"

namespace weft::perf {

std::string nccl_name(DataType dtype) {
  switch (dtype) {
    case DataType::i8: return "int8";
    case DataType::u8: return "uint8";
    case DataType::i32: return "int32";
    case DataType::u32: return "uint32";
    case DataType::i64: return "int64";
    case DataType::u64: return "uint64";
    case DataType::f16: return "half";
    case DataType::bf16: return "bfloat16";
    case DataType::f32: return "float";
    case DataType::f64: return "double";
    default: return std::string(to_string(dtype));
  }
}

std::string nccl_name(ReduceOp op) {
  return op == ReduceOp::premul_sum ? "mulsum" : std::string(to_string(op));
}

std::vector<DataType> known_types() {
  std::vector<DataType> types;
  for (int value = 0; is_valid(static_cast<DataType>(value)); ++value) types.push_back(static_cast<DataType>(value));
  return types;
}

std::vector<ReduceOp> known_ops() {
  std::vector<ReduceOp> ops;
  for (int value = 0; value <= static_cast<int>(ReduceOp::premul_sum); ++value) {
    ops.push_back(static_cast<ReduceOp>(value));
  }
  return ops;
}

std::vector<DataType> const& all_types() {
  static std::vector<DataType> const types{DataType::i8,  DataType::u8,   DataType::i32,    DataType::u32,
                                           DataType::i64, DataType::u64,  DataType::f16,    DataType::f32,
                                           DataType::f64, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2};
  return types;
}

std::vector<ReduceOp> const& all_ops() {
  static std::vector<ReduceOp> const ops{ReduceOp::sum, ReduceOp::prod, ReduceOp::max,
                                         ReduceOp::min, ReduceOp::avg,  ReduceOp::premul_sum};
  return ops;
}

}  // namespace weft::perf
