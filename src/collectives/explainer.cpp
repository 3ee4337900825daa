#include "collectives/explainer.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "collectives/merged_call.hpp"
#include "core/log.hpp"

namespace weft {

Explainer::Explainer(std::string backend, int ranks) : backend_(std::move(backend)), ranks_(ranks) {}

void Explainer::note(Operation operation, std::string_view memory, std::string_view algorithm,
                     std::function<std::string()> const& details) {
  if (silences > 0) return;
  auto const decision = fmt::format("{}, {}: {}", to_string(operation), memory, algorithm);
  if (!told_.insert(decision).second) return;
  tell("explain", fmt::format("{}, {} ranks: {}; {}", backend_, ranks_, decision, details()));
}

void Explainer::note(MergedCall const& merged, std::string_view memory, std::string_view algorithm,
                     std::string_view where) {
  note(merged.call().contract.operation, memory, algorithm, [&] {
    return fmt::format("{} calls of {} in all, {}", merged.pieces().size(), describe_bytes(merged.bytes()), where);
  });
}

std::string describe_bytes(std::size_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB"};
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  return fmt::format("{:.4g} {}", amount, kUnits[unit]);
}

std::string describe_bytes(std::size_t least, std::optional<std::size_t> most) {
  if (!most) return fmt::format("over {}", describe_bytes(least - 1));
  if (least == 0) return fmt::format("up to {}", describe_bytes(*most));
  return fmt::format("{} to {}", describe_bytes(least), describe_bytes(*most));
}

}  // namespace weft
