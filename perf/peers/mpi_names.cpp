#include "peers/mpi_names.hpp"

namespace weft::perf {

std::optional<MPI_Datatype> mpi_type(DataType dtype) {
  switch (dtype) {
    case DataType::i8: return MPI_INT8_T;
    case DataType::u8: return MPI_UINT8_T;
    case DataType::i16: return MPI_INT16_T;
    case DataType::u16: return MPI_UINT16_T;
    case DataType::i32: return MPI_INT32_T;
    case DataType::u32: return MPI_UINT32_T;
    case DataType::i64: return MPI_INT64_T;
    case DataType::u64: return MPI_UINT64_T;
    case DataType::f32: return MPI_FLOAT;
    case DataType::f64: return MPI_DOUBLE;
    case DataType::c64: return MPI_C_FLOAT_COMPLEX;
    case DataType::c128: return MPI_C_DOUBLE_COMPLEX;
    case DataType::boolean: return MPI_C_BOOL;
    default: return std::nullopt;
  }
}

std::optional<MPI_Op> mpi_op(ReduceOp op, DataType type) {
  bool const of_truth = op == ReduceOp::land || op == ReduceOp::lor || op == ReduceOp::lxor;
  bool const is_truth = type == DataType::boolean;
  if (of_truth ? !is_truth && !is_integer(type) : is_truth) return std::nullopt;
  switch (op) {
    case ReduceOp::sum: return MPI_SUM;
    case ReduceOp::prod: return MPI_PROD;
    case ReduceOp::min: return MPI_MIN;
    case ReduceOp::max: return MPI_MAX;
    case ReduceOp::land: return MPI_LAND;
    case ReduceOp::lor: return MPI_LOR;
    case ReduceOp::lxor: return MPI_LXOR;
    case ReduceOp::band: return MPI_BAND;
    case ReduceOp::bor: return MPI_BOR;
    case ReduceOp::bxor: return MPI_BXOR;
    default: return std::nullopt;
  }
}

}  // namespace weft::perf
