#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/weft.hpp"

namespace weft::test {

/// Values of one rank's buffer as doubles: small integers, so that every type holds them, and most hold
/// sums of a few ranks exactly. Complex numbers are real.
[[nodiscard]] std::vector<double> make_values(std::size_t count, DataType dtype, ReduceOp op, int rank,
                                              std::uint64_t seed);

/// Element-wise reduction over ranks in double precision (avg of integers truncates toward zero).
[[nodiscard]] std::vector<double> reduce_values(std::vector<std::vector<double>> const& contributions, DataType dtype,
                                                ReduceOp op);

void store_values(std::vector<double> const& values, BufferView view);
[[nodiscard]] std::vector<double> load_values(ConstBufferView view);

inline constexpr DataType kAllTypes[] = {
    DataType::i8,  DataType::u8,      DataType::i16,    DataType::u16,    DataType::i32, DataType::u32,
    DataType::i64, DataType::u64,     DataType::f16,    DataType::bf16,   DataType::f32, DataType::f64,
    DataType::c64, DataType::boolean, DataType::f8e4m3, DataType::f8e5m2, DataType::c128};
/// Those that need no more than their name. Not every type supports every one.
inline constexpr ReduceOp kAllOps[] = {ReduceOp::sum,  ReduceOp::avg,  ReduceOp::prod, ReduceOp::min,
                                       ReduceOp::max,  ReduceOp::land, ReduceOp::lor,  ReduceOp::lxor,
                                       ReduceOp::band, ReduceOp::bor,  ReduceOp::bxor};

}  // namespace weft::test
