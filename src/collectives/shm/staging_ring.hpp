#pragma once

#include <array>
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
/// Ranks that take turns on a core want the opposite: each finds the others' lines in the core's caches, and few pages.
/// They rotate `closely`: small blocks, and larger ones, through little rings of their own.
class StagingRing {
 public:
  static constexpr std::size_t kBlocks = 6;
  /// Most that a block of each little ring holds.
  static constexpr std::array<std::size_t, 2> kLittle{2048, 16384};

  /// Memory of one rank with `ring_bytes` for large blocks.
  [[nodiscard]] static constexpr std::size_t bytes_per_rank(std::size_t ring_bytes, bool closely) noexcept {
    for (auto const most : kLittle) ring_bytes += closely ? kBlocks * most : 0;
    return ring_bytes;
  }
  /// Largest block that take() gives of so many bytes for large blocks.
  [[nodiscard]] static constexpr std::size_t max_block(std::size_t ring_bytes) noexcept {
    return ring_bytes / kBlocks / kLine * kLine;
  }

  /// `mapping` has bytes_per_rank() for each rank.
  StagingRing(std::shared_ptr<Mapping> mapping, std::size_t ring_bytes, bool closely) noexcept
      : mapping_(std::move(mapping)), stride_(bytes_per_rank(ring_bytes, closely)) {
    std::size_t begin = 0;
    for (std::size_t i = 0; closely && i < kLittle.size(); ++i) {
      rings_[i] = {begin, begin + kBlocks * kLittle[i], kLittle[i], begin};
      begin = rings_[i].end;
    }
    rings_.back() = {begin, stride_, max_block(ring_bytes), begin};
  }

  /// Offset of the next `bytes` ≤ max_block() in every rank's memory, 64-byte aligned.
  [[nodiscard]] std::size_t take(std::size_t bytes) noexcept {
    bytes = (bytes + kLine - 1) / kLine * kLine;
    auto& ring = rings_[index_for(bytes)];
    auto const offset = ring.next_for(bytes);
    ring.next = offset + bytes;
    return offset;
  }

  /// Asks for ownership of the lines that the next block of up to `bytes` will occupy in `rank`'s memory, so that
  /// staging finds them ready.
  void prefetch(int rank, std::size_t bytes) const noexcept {
    auto const offset = rings_[index_for(bytes)].next_for(bytes);
    for (std::size_t line = 0; line < bytes; line += kLine) prefetch_for_write(at(rank, offset + line));
  }

  /// Forgets what was taken; only when all ranks do, and no block is in use.
  void reset() noexcept {
    for (auto& ring : rings_) ring.next = ring.begin;
  }

  [[nodiscard]] std::byte* at(int rank, std::size_t offset) const noexcept {
    return mapping_->data() + static_cast<std::size_t>(rank) * stride_ + offset;
  }

 private:
  struct Ring {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t most = 0;  ///< bytes of a block; 0: there is no such ring
    std::size_t next = 0;

    [[nodiscard]] std::size_t next_for(std::size_t bytes) const noexcept { return next + bytes > end ? begin : next; }
  };

  [[nodiscard]] std::size_t index_for(std::size_t bytes) const noexcept {
    std::size_t index = 0;
    while (index + 1 < rings_.size() && bytes > rings_[index].most) ++index;
    return index;
  }

  std::shared_ptr<Mapping> mapping_;
  std::size_t stride_;  ///< from one rank's memory to the next one's
  std::array<Ring, kLittle.size() + 1> rings_{};
};

}  // namespace weft::shm
