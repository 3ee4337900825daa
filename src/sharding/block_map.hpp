#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace weft {

/// Who lies where in a fixed stretch of memory: blocks that do not overlap, whose places depend on nothing but the
/// calls made, so that ranks that make the same calls lay out alike. Not thread-safe.
class BlockMap {
 public:
  explicit BlockMap(std::size_t capacity = 0) : capacity_(capacity) {}

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }

  /// Where a block of `bytes` was placed; nothing where no gap is large enough. Blocks go to the end that is free, to
  /// either in turn where both or none are: of two at a time no gap is ever lost. The first of an empty map goes to
  /// the lower end, so equal calls from there on have equal results.
  [[nodiscard]] std::optional<std::size_t> place(std::size_t bytes);
  /// Takes back a block of place()'s.
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
  std::vector<Block> blocks_;  ///< by offset; none is empty
  bool from_above_ = false;
};

}  // namespace weft
