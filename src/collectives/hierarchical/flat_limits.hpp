#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collectives/call.hpp"

namespace weft::hierarchical {

/// Groups of operations whose costs are alike, both by one exchange between all ranks ("flat") and by hosts.
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

/// The time of calls of B bytes that go one of the two ways: α + B·β.
struct WayCost {
  double alpha_s = 0;
  double beta_s_per_byte = 0;

  /// The line through two measurements; α and β are at least 0.
  [[nodiscard]] static WayCost through(std::size_t few, double few_s, std::size_t many, double many_s) noexcept;
};

/// The costs of both ways for each pattern: by one exchange between all ranks, and by hosts.
struct LevelCosts {
  ByPattern<bool> measured{};
  ByPattern<WayCost> flat{};
  ByPattern<WayCost> by_hosts{};
};

/// Up to how many bytes `flat` takes no longer than `by_hosts`: (α_h − α_f)/(β_f − β_h), limited to [0, `most`].
[[nodiscard]] std::size_t crossover(WayCost const& flat, WayCost const& by_hosts, std::size_t most) noexcept;

/// The largest calls, in bytes of the whole buffer, that are one exchange between all ranks.
using FlatLimits = ByPattern<std::size_t>;
/// The limit where nothing was measured: up to about this size one exchange takes less time than several steps.
inline constexpr std::size_t kAssumedLimit = std::size_t{4} << 10;
/// The largest limit for calls that only move data. They need not hold all contributions together, as calls that
/// combine do, but beyond this size the measurements say nothing.
inline constexpr std::size_t kMostMovedFlat = std::size_t{256} << 10;
/// The limits among so many ranks: the crossover of the measured costs, but at most most_combined_at_once(), or
/// kMostMovedFlat where nothing is combined. Where a pattern was not measured: kAssumedLimit.
[[nodiscard]] FlatLimits limits_of(LevelCosts const& costs, std::size_t ranks) noexcept;

}  // namespace weft::hierarchical
