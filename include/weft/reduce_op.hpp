#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

/// Element-wise reduction. Contributions are combined in rank order; f16 and bf16 accumulate in f32 and round once.
/// avg is sum divided by the number of ranks (integers truncate toward zero). The numeric values are part of the
/// contract ranks exchange.
enum class ReduceOp : std::uint8_t { sum, avg, prod, min, max };

[[nodiscard]] constexpr bool is_valid(ReduceOp op) noexcept {
  return op <= ReduceOp::max;
}
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;
[[nodiscard]] std::optional<ReduceOp> parse_reduce_op(std::string_view name) noexcept;

}  // namespace weft
