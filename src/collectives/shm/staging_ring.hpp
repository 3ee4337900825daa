#pragma once

#include <cstddef>
#include <memory>

#include "collectives/shm/segment.hpp"
#include "core/cache_line.hpp"

namespace weft::shm {

/// Every rank's staging memory: one ring per rank, in one segment. Blocks are taken by all ranks alike (same sizes in
/// the same order), so a block's offset is the same in every ring and need not be told.
///
/// A block stays untouched while the next kBlocks − 2 blocks are taken. That is what makes rotation safe without
/// handshakes: algorithms never write a block while a peer may still read one taken three or more before it. Rotation
/// through more than L2 also keeps a rank from re-staging lines that a peer has just read, which costs several times a
/// plain store.
///
/// Ranks that take turns on a core want the opposite: each finds the others' lines in the core's caches, and pages that
/// the core has just translated. They rotate `closely`: small blocks go through a little ring of their own, at the
/// front of the memory, unless there is too little of it (docs/decisions/0007).
class StagingRing {
 public:
  static constexpr std::size_t kBlocks = 6;
  /// Largest block of the little ring.
  static constexpr std::size_t kMostLittle = 8192;

  /// Largest block that take() gives where each rank has `bytes`.
  [[nodiscard]] static constexpr std::size_t max_block(std::size_t bytes, bool closely) noexcept {
    return (bytes - little_bytes(bytes, closely)) / kBlocks / kLine * kLine;
  }

  /// `mapping` has `bytes_per_rank`, a multiple of 64, for each rank.
  StagingRing(std::shared_ptr<Mapping> mapping, std::size_t bytes_per_rank, bool closely) noexcept
      : mapping_(std::move(mapping)), bytes_per_rank_(bytes_per_rank) {
    auto const border = little_bytes(bytes_per_rank, closely);
    little_ = {0, border, 0};
    large_ = {border, bytes_per_rank, border};
  }

  /// Offset of the next `bytes` ≤ max_block() in every rank's memory, 64-byte aligned.
  [[nodiscard]] std::size_t take(std::size_t bytes) noexcept {
    bytes = (bytes + kLine - 1) / kLine * kLine;
    auto& ring = bytes <= kMostLittle && little_.end > 0 ? little_ : large_;
    auto const offset = ring.next_for(bytes);
    ring.next = offset + bytes;
    return offset;
  }

  /// Asks for ownership of the lines that the next block of up to `bytes` will occupy in `rank`'s memory, so that
  /// staging finds them ready.
  void prefetch(int rank, std::size_t bytes) const noexcept {
    auto const& ring = bytes <= kMostLittle && little_.end > 0 ? little_ : large_;
    auto const offset = ring.next_for(bytes);
    for (std::size_t line = 0; line < bytes; line += kLine) prefetch_for_write(at(rank, offset + line));
  }

  /// Forgets what was taken; only when all ranks do, and no block is in use.
  void reset() noexcept {
    little_.next = little_.begin;
    large_.next = large_.begin;
  }

  [[nodiscard]] std::byte* at(int rank, std::size_t offset) const noexcept {
    return mapping_->data() + static_cast<std::size_t>(rank) * bytes_per_rank_ + offset;
  }

 private:
  struct Ring {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t next = 0;

    [[nodiscard]] std::size_t next_for(std::size_t bytes) const noexcept { return next + bytes > end ? begin : next; }
  };

  [[nodiscard]] static constexpr std::size_t little_bytes(std::size_t bytes, bool closely) noexcept {
    constexpr auto kBytes = kBlocks * kMostLittle;
    return closely && bytes >= 4 * kBytes ? kBytes : 0;
  }

  std::shared_ptr<Mapping> mapping_;
  std::size_t bytes_per_rank_;
  Ring little_;
  Ring large_;
};

}  // namespace weft::shm
