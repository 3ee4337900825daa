#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace train_gpt {

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): a bijective mix of 64 bits.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31U);
}

/// Numbers that depend on the seed only, not on the standard library, so that runs compare across machines.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(mix(seed)) {}

  [[nodiscard]] std::uint64_t next() noexcept { return mix(state_++); }
  /// In (0, 1].
  [[nodiscard]] double uniform() noexcept { return (static_cast<double>(next() >> 11U) + 1.0) * 0x1.0p-53; }
  /// Mean 0, deviation 1 (Box-Muller, one of the pair).
  [[nodiscard]] double normal() noexcept {
    double const radius = std::sqrt(-2.0 * std::log(uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t state_;
};

}  // namespace train_gpt
