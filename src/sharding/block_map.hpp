#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace weft {

/// Places blocks in a fixed stretch of memory, without overlaps. Where a block goes depends on nothing but the calls
/// made so far, so ranks that make the same calls get the same layout. Not thread-safe.
class BlockMap {
 public:
  explicit BlockMap(std::size_t capacity = 0) : capacity_(capacity) {}

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }

  /// The offset at which a block of `bytes` was placed; nothing where no gap is large enough. A block goes to whichever
  /// end of the memory is free, and to the two ends in turn where both or neither are free: with two blocks at a time
  /// no gap is ever lost. The first block of an empty map goes to the lower end, so equal calls from then on have equal
  /// results.
  [[nodiscard]] std::optional<std::size_t> place(std::size_t bytes);
  /// Frees a block that place() returned.
  void release(std::size_t offset, std::size_t bytes);

 private:
  struct Block {
    std::size_t offset;
    std::size_t bytes;
  };

  [[nodiscard]] std::optional<std::size_t> lowest(std::size_t bytes) const;
  [[nodiscard]] std::optional<std::size_t> highest(std::size_t bytes) const;

  std::size_t capacity_;
  std::size_t used_ = 0;
  std::vector<Block> blocks_;  ///< sorted by offset; none is empty
  bool from_above_ = false;
};

}  // namespace weft
