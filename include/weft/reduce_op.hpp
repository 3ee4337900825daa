#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "weft/data_type.hpp"

namespace weft {

/// Element-wise reduction. Contributions are combined in rank order; 8-bit and 16-bit floats accumulate in f32 and
/// round once. The numeric values are part of the contract ranks exchange.
enum class ReduceOp : std::uint8_t {
  sum,   ///< integers wrap; boolean: or
  avg,   ///< the sum divided by the number of ranks (integers truncate toward zero)
  prod,  ///< integers wrap; boolean: and; complex: (ac − bd) + (ad + bc)i, each operation rounded
  min,   ///< NaN if any contribution is NaN; boolean: and
  max,   ///< likewise; boolean: or
  land,  ///< 1 where all contributions differ from 0, else 0; always 0 or 1, with one rank too. NaN differs from 0
  lor,   ///< 1 where any contribution differs from 0, else 0
  lxor,  ///< 1 where an odd number of contributions differ from 0, else 0
  band,  ///< bitwise; boolean: as land
  bor,   ///< bitwise; boolean: as lor
  bxor,  ///< bitwise; boolean: as lxor
  premul_sum,  ///< the sum of contributions that are multiplied by their rank's scale first, see Reduction
  user,        ///< a function of the caller's, see Reduction
};

[[nodiscard]] constexpr bool is_valid(ReduceOp op) noexcept {
  return op <= ReduceOp::user;
}
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;
[[nodiscard]] std::optional<ReduceOp> parse_reduce_op(std::string_view name) noexcept;

/// Whether elements of `type` can be reduced by `op`, on every back end: complex numbers have no order, truth or bits;
/// floats have no bits; truth values have no average and no multiples. False for values outside the enumerations.
[[nodiscard]] constexpr bool supports(DataType type, ReduceOp op) noexcept {
  if (!is_valid(type)) return false;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::user: return true;
    case ReduceOp::avg:
    case ReduceOp::premul_sum: return type != DataType::boolean;
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::land:
    case ReduceOp::lor:
    case ReduceOp::lxor: return !is_complex(type);
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor: return is_integer(type) || type == DataType::boolean;
  }
  return false;
}

}  // namespace weft
