#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "collectives/call.hpp"
#include "weft/parts.hpp"

namespace weft::hierarchical {

/// The most bytes that a rank sends to another host at once, of data that goes through both levels piece by piece.
inline constexpr std::size_t kSlice = std::size_t{128} << 10;
/// The most bytes that a rank holds at once for a call, unless so many ranks or hosts would make blocks too short.
inline constexpr std::size_t kMostHeld = std::size_t{64} << 20;
inline constexpr std::size_t kLeastBlock = std::size_t{4} << 10;

/// The bytes of a block where so many blocks are held at once. Together they should fit into the cache, but each must
/// be long enough to be worth a message.
[[nodiscard]] inline std::size_t block_bytes(std::size_t blocks) noexcept {
  constexpr auto kCached = std::size_t{4} << 20;
  constexpr auto kWorthSending = std::size_t{64} << 10;
  return std::max({kCached / blocks, std::min(kWorthSending, kMostHeld / blocks), kLeastBlock}) / 64 * 64;
}

/// A step of `outer` with so many elements of its data type; `outer` must outlive it.
[[nodiscard]] inline Call inner(Call const& outer, Operation operation, std::size_t count) {
  Call call;
  call.contract = {.count = count, .operation = operation, .dtype = outer.contract.dtype};
  call.timeout = outer.timeout;
  call.on_stream = outer.on_stream;
  call.waited_for = outer.waited_for;
  call.within = outer.within != nullptr ? outer.within : &outer;
  return call;
}

/// `given` as call number `sequence` of a level; `given` must outlive it.
[[nodiscard]] inline Call step_of(Call const& given, std::uint64_t sequence) {
  Call call = given;
  call.sequence = sequence;
  if (call.within == nullptr) call.within = &given;
  return call;
}

/// The fewest bytes that are both whole elements and whole grains: a user's elements may be smaller than those of the
/// data type, or no multiple of them.
[[nodiscard]] inline std::size_t unit_of(Call const& call) noexcept {
  return std::lcm(call.grain(), size_of(call.contract.dtype));
}

/// Counts and offsets of ranges, in the order of the ranks that they are for.
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
