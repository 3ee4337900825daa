#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "collectives/call.hpp"
#include "weft/parts.hpp"

namespace weft::hierarchical {

/// Of a chunk that goes through all levels, what each rank of a host sends to another host at most.
inline constexpr std::size_t kSlice = std::size_t{128} << 10;
/// What a rank holds at once for a call at most, unless ranks or hosts are so many that blocks would be short.
inline constexpr std::size_t kMostHeld = std::size_t{64} << 20;
inline constexpr std::size_t kLeastBlock = std::size_t{4} << 10;

/// Bytes of each of so many blocks that are held at once. They share what caches hold, but are not so short that
/// messages would take longer for being many.
[[nodiscard]] inline std::size_t block_bytes(std::size_t blocks) noexcept {
  constexpr auto kCached = std::size_t{4} << 20;
  constexpr auto kWorthSending = std::size_t{64} << 10;
  return std::max({kCached / blocks, std::min(kWorthSending, kMostHeld / blocks), kLeastBlock}) / 64 * 64;
}

/// A step of `outer`, which outlives it.
[[nodiscard]] inline Call inner(Call const& outer, Operation operation, std::size_t count) {
  Call call;
  call.contract = {.count = count, .operation = operation, .dtype = outer.contract.dtype};
  call.timeout = outer.timeout;
  call.on_stream = outer.on_stream;
  call.waited_for = outer.waited_for;
  call.within = outer.within != nullptr ? outer.within : &outer;
  return call;
}

/// `given` as a level's `sequence`-th call; `given` outlives it.
[[nodiscard]] inline Call step_of(Call const& given, std::uint64_t sequence) {
  Call call = given;
  call.sequence = sequence;
  if (call.within == nullptr) call.within = &given;
  return call;
}

/// Bytes that are whole elements and whole grains: a user's elements may be smaller than the data type's, or no
/// multiple.
[[nodiscard]] inline std::size_t unit_of(Call const& call) noexcept {
  return std::lcm(call.grain(), size_of(call.contract.dtype));
}

/// Counts and offsets of some ranks' ranges.
struct PartArrays {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets;

  void add(std::size_t first, std::size_t count) {
    counts.push_back(count);
    offsets.push_back(count > 0 ? first : 0);
  }
  [[nodiscard]] Parts parts() const noexcept { return {counts, offsets}; }
  [[nodiscard]] std::size_t total() const noexcept {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
};

}  // namespace weft::hierarchical
