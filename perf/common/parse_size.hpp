#pragma once

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "weft/config.hpp"

namespace weft::perf {

/// The bytes that a text such as "4K" means; like nccl-tests it also reads "0.5K" and "1e3". None if it is not a size.
[[nodiscard]] inline std::optional<std::size_t> parse_size(std::string const& text) {
  if (auto const whole = parse_bytes(text)) return whole;
  char* end = nullptr;
  double const number = std::strtod(text.c_str(), &end);
  auto const unit = end == text.c_str() ? std::nullopt : parse_bytes(std::string("1") + end);
  if (!unit || std::isnan(number) || number < 0) return std::nullopt;
  auto const bytes = number * static_cast<double>(*unit);
  constexpr auto kMost = static_cast<double>(std::numeric_limits<std::size_t>::max());
  return bytes < kMost ? std::optional(static_cast<std::size_t>(bytes)) : std::nullopt;
}

}  // namespace weft::perf
