#include "runtime/with_unit.hpp"

#include <fmt/format.h>

namespace weft {

std::string with_unit(std::size_t bytes) {
  constexpr double kStep = 1024;
  auto value = static_cast<double>(bytes);
  if (value < kStep) return fmt::format("{} B", bytes);
  char const* unit = "";
  for (char const* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < kStep) break;
    value /= kStep;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

}  // namespace weft
