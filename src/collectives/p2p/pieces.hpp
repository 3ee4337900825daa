#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "collectives/p2p/context.hpp"
#include "collectives/partition.hpp"

namespace weft::p2p {

/// Grains [first, first + count) of a buffer.
using Piece = Range;

/// Divides `count` grains into `parts` pieces, cut at cache lines.
[[nodiscard]] inline std::vector<Piece> split(std::size_t count, std::size_t parts, std::size_t grain) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < parts; ++i) pieces.push_back(part_of(count, i, parts, grain));
  return pieces;
}

/// Where every rank's share of a buffer lies; lengths are whole grains, offsets need not be.
using Shares = std::vector<ByteRange>;

/// The shares of a buffer without parts.
[[nodiscard]] inline Shares shares_of(Call const& call, int ranks) {
  Shares shares;
  for (auto const& piece : split(call.bytes() / call.grain(), static_cast<std::size_t>(ranks), call.grain())) {
    shares.push_back({piece.first * call.grain(), piece.count * call.grain()});
  }
  return shares;
}

/// The shares of a buffer with parts.
[[nodiscard]] inline Shares shares_of(Call const& call, Parts const& parts, int ranks) {
  Shares shares;
  for (int r = 0; r < ranks; ++r) shares.push_back(call.part(parts, r));
  return shares;
}

/// Length of the longest share, in bytes.
[[nodiscard]] inline std::size_t longest_of(Shares const& shares) noexcept {
  std::size_t longest = 0;
  for (auto const& share : shares) longest = std::max(longest, share.length);
  return longest;
}

/// A buffer that passes in chunks: chunk k is grains [k·length, …).
struct Chunks {
  std::size_t count = 0;   ///< of all grains
  std::size_t length = 1;  ///< of a chunk

  Chunks(std::size_t grains, std::size_t grain_bytes, Tuning const& tuning) noexcept
      : count(grains), length(std::max<std::size_t>(1, tuning.chunk_bytes / grain_bytes)) {}

  [[nodiscard]] std::size_t size() const noexcept { return ceil_div(count, length); }
  [[nodiscard]] Piece operator[](std::size_t k) const noexcept { return block_of(count, k, length); }
};

}  // namespace weft::p2p
