#include "collectives/shm/block_pool.hpp"

#include <iterator>

namespace weft::shm {

void BlockPool::forget(Stretch stretch) {
  by_size_.erase({stretch->second, stretch->first});
  by_offset_.erase(stretch);
}

void BlockPool::give(std::size_t offset, std::size_t bytes) {
  auto const next = by_offset_.lower_bound(offset);
  if (next != by_offset_.begin()) {
    auto const before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      forget(before);
    }
  }
  if (next != by_offset_.end() && next->first == offset + bytes) {
    bytes += next->second;
    forget(next);
  }
  by_offset_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

std::optional<std::size_t> BlockPool::take(std::size_t bytes) {
  auto const best = by_size_.lower_bound({bytes, 0});
  if (best == by_size_.end()) return std::nullopt;
  auto const [length, offset] = *best;
  forget(by_offset_.find(offset));
  if (length > bytes) give(offset + bytes, length - bytes);
  return offset;
}

std::size_t BlockPool::free_before(std::size_t end) const {
  if (by_offset_.empty()) return 0;
  auto const after = by_offset_.lower_bound(end);
  if (after == by_offset_.begin()) return 0;
  auto const last = std::prev(after);
  return last->first + last->second == end ? last->second : 0;
}

}  // namespace weft::shm
