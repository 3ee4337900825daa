#pragma once

#include <cstddef>
#include <memory>

#include "collectives/shm/segment.hpp"

namespace weft::shm {

/// Staging memory of two ranks: two blocks that change hands at every exchange. A rank stages for its peer in the block
/// that it read last. Every line is in its cache already, ready to be written, so it moves between the caches once per
/// exchange. Staging in memory of its own would cost a second move, to own again what the peer has read.
///
/// No handshake is needed before staging: what is overwritten was read by this rank alone. Both ranks call swap()
/// alike.
class SwapBlocks {
 public:
  SwapBlocks(std::shared_ptr<Mapping> mapping, std::size_t block_bytes) noexcept
      : mapping_(std::move(mapping)), block_bytes_(block_bytes) {}

  [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_; }

  /// The block that `rank` (0 or 1) stages in until the next swap().
  [[nodiscard]] std::byte* of(int rank) const noexcept {
    return mapping_->data() + static_cast<std::size_t>(rank ^ turn_) * block_bytes_;
  }

  void swap() noexcept { turn_ ^= 1; }
  /// Only when both ranks do, and no block is in use.
  void reset() noexcept { turn_ = 0; }

 private:
  std::shared_ptr<Mapping> mapping_;
  std::size_t block_bytes_;
  int turn_ = 0;
};

}  // namespace weft::shm
