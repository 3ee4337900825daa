#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collectives/call.hpp"

namespace weft::hierarchical {

/// Operations that are alike in what they take by one exchange between all ranks, and by hosts.
enum class Pattern : std::uint8_t { combine, gather, spread, exchange };
inline constexpr std::array kPatterns{Pattern::combine, Pattern::gather, Pattern::spread, Pattern::exchange};

[[nodiscard]] Pattern pattern_of(Operation operation) noexcept;

/// A value for each pattern.
template <typename T>
struct ByPattern {
  std::array<T, kPatterns.size()> values{};

  [[nodiscard]] T& operator[](Pattern pattern) noexcept { return values[static_cast<std::size_t>(pattern)]; }
  [[nodiscard]] T const& operator[](Pattern pattern) const noexcept {
    return values[static_cast<std::size_t>(pattern)];
  }
};

/// What calls of B bytes take one way: α + B·β.
struct WayCost {
  double alpha_s = 0;
  double beta_s_per_byte = 0;

  /// The line through two measurements; neither α nor β is less than nothing.
  [[nodiscard]] static WayCost through(std::size_t few, double few_s, std::size_t many, double many_s) noexcept;
};

/// ... and both ways: by one exchange between all ranks, and by hosts.
struct LevelCosts {
  ByPattern<bool> measured{};
  ByPattern<WayCost> flat{};
  ByPattern<WayCost> by_hosts{};
};

/// Up to how many bytes `flat` takes no longer than `by_hosts`, between 0 and `most`: (α_h − α_f)/(β_f − β_h).
[[nodiscard]] std::size_t crossover(WayCost const& flat, WayCost const& by_hosts, std::size_t most) noexcept;

/// Up to which sizes, in bytes of the whole buffer, calls are one exchange between all ranks.
using FlatLimits = ByPattern<std::size_t>;
/// Where nothing was measured: up to here one exchange takes less than several steps, about.
inline constexpr std::size_t kAssumedLimit = std::size_t{4} << 10;
/// What is moved is not held together as what is combined is; but further than this measurements do not tell.
inline constexpr std::size_t kMostMovedFlat = std::size_t{256} << 10;
/// Among so many ranks: by what was measured, no more than most_combined_at_once(), or kMostMovedFlat where nothing is
/// combined; else kAssumedLimit.
[[nodiscard]] FlatLimits limits_of(LevelCosts const& costs, std::size_t ranks) noexcept;

}  // namespace weft::hierarchical
