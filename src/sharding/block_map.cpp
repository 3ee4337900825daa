#include "sharding/block_map.hpp"

#include <algorithm>

namespace weft {

std::optional<std::size_t> BlockMap::lowest(std::size_t bytes) const {
  std::size_t begin = 0;
  for (Block const& block : blocks_) {
    if (block.offset - begin >= bytes) return begin;
    begin = block.offset + block.bytes;
  }
  if (capacity_ - begin >= bytes) return begin;
  return std::nullopt;
}

std::optional<std::size_t> BlockMap::highest(std::size_t bytes) const {
  std::size_t end = capacity_;
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    std::size_t const begin = block->offset + block->bytes;
    if (end - begin >= bytes) return end - bytes;
    end = block->offset;
  }
  if (end >= bytes) return end - bytes;
  return std::nullopt;
}

std::optional<std::size_t> BlockMap::place(std::size_t bytes) {
  if (bytes == 0) return 0;
  std::optional<std::size_t> const low = lowest(bytes);
  std::optional<std::size_t> const high = highest(bytes);
  if (!low) return low;
  bool const low_end = *low == 0;
  bool const high_end = *high + bytes == capacity_;
  bool const above = low_end == high_end ? from_above_ : high_end;
  std::optional<std::size_t> const offset = above ? high : low;
  from_above_ = !above;
  auto const behind = std::find_if(blocks_.begin(), blocks_.end(), [&](Block const& b) { return b.offset > *offset; });
  blocks_.insert(behind, {*offset, bytes});
  used_ += bytes;
  return offset;
}

void BlockMap::release(std::size_t offset, std::size_t bytes) {
  if (bytes == 0) return;
  auto const block = std::find_if(blocks_.begin(), blocks_.end(), [&](Block const& b) { return b.offset == offset; });
  blocks_.erase(block);
  used_ -= bytes;
  if (blocks_.empty()) from_above_ = false;
}

}  // namespace weft
