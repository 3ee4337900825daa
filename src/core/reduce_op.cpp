#include "weft/reduce_op.hpp"

#include <array>

namespace weft {
namespace {

constexpr std::array<std::string_view, 13> kNames{"sum",  "avg",  "prod", "min",  "max",        "land", "lor",
                                                  "lxor", "band", "bor",  "bxor", "premul_sum", "user"};

}  // namespace

std::string_view to_string(ReduceOp op) noexcept {
  return is_valid(op) ? kNames[static_cast<std::size_t>(op)] : std::string_view("invalid");
}

std::optional<ReduceOp> parse_reduce_op(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

}  // namespace weft
