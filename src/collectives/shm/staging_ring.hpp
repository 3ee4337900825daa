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
class StagingRing {
 public:
  static constexpr std::size_t kBlocks = 6;

  StagingRing(std::shared_ptr<Mapping> mapping, std::size_t bytes_per_rank) noexcept
      : mapping_(std::move(mapping)), ring_bytes_(bytes_per_rank) {}

  /// Largest block that take() gives.
  [[nodiscard]] std::size_t max_block() const noexcept { return ring_bytes_ / kBlocks / 64 * 64; }

  /// Offset of the next `bytes` ≤ max_block() in every rank's ring, 64-byte aligned.
  [[nodiscard]] std::size_t take(std::size_t bytes) noexcept {
    bytes = (bytes + 63) / 64 * 64;
    if (next_ + bytes > ring_bytes_) next_ = 0;
    auto const offset = next_;
    next_ += bytes;
    return offset;
  }

  /// Asks for ownership of the lines that the next block of up to `bytes` will occupy in `rank`'s ring, so that staging
  /// finds them ready.
  void prefetch(int rank, std::size_t bytes) const noexcept {
    auto const offset = next_ + bytes > ring_bytes_ ? 0 : next_;
    for (std::size_t line = 0; line < bytes; line += 64) prefetch_for_write(at(rank, offset + line));
  }

  /// Forgets what was taken; only when all ranks do, and no block is in use.
  void reset() noexcept { next_ = 0; }

  [[nodiscard]] std::byte* at(int rank, std::size_t offset) const noexcept {
    return mapping_->data() + static_cast<std::size_t>(rank) * ring_bytes_ + offset;
  }

 private:
  std::shared_ptr<Mapping> mapping_;
  std::size_t ring_bytes_;
  std::size_t next_ = 0;
};

}  // namespace weft::shm
