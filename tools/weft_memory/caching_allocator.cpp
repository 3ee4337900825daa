#include "weft_memory/caching_allocator.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace weft::memory_tool {

namespace {

constexpr std::int64_t kUnit = 512;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

class CachingAllocator {
 public:
  /// The block's address: segments lie apart from one another.
  std::int64_t take(std::int64_t bytes) {
    std::int64_t const size = std::max(round_up(bytes, kUnit), kUnit);
    bool const small = size <= kMiB;
    auto& free = free_[small ? 0 : 1];
    auto found = free.lower_bound({size, 0});
    if (found == free.end()) found = free.emplace(new_segment(size)).first;
    auto const [have, address] = *found;
    free.erase(found);
    std::int64_t const rest = have - size;
    bool const splits = small ? rest >= kUnit : rest > kMiB;
    blocks_[address] = {splits ? size : have, small, true};
    if (splits) {
      blocks_[address + size] = {rest, small, false};
      free.emplace(rest, address + size);
    }
    return address;
  }

  void give(std::int64_t address) {
    auto block = blocks_.find(address);
    auto& free = free_[block->second.small ? 0 : 1];
    block->second.used = false;
    if (auto const next = std::next(block); touches(block, next)) {
      free.erase({next->second.bytes, next->first});
      block->second.bytes += next->second.bytes;
      blocks_.erase(next);
    }
    if (block != blocks_.begin()) {
      if (auto const before = std::prev(block); touches(before, block)) {
        free.erase({before->second.bytes, before->first});
        before->second.bytes += block->second.bytes;
        blocks_.erase(block);
        block = before;
      }
    }
    free.emplace(block->second.bytes, block->first);
  }

  [[nodiscard]] std::int64_t reserved() const { return reserved_; }

 private:
  struct Block {
    std::int64_t bytes;
    bool small;
    bool used;
  };
  using Blocks = std::map<std::int64_t, Block>;

  std::pair<std::int64_t, std::int64_t> new_segment(std::int64_t size) {
    std::int64_t bytes = round_up(size, 2 * kMiB);
    if (size <= kMiB) {
      bytes = 2 * kMiB;
    } else if (size < 10 * kMiB) {
      bytes = 20 * kMiB;
    }
    std::int64_t const address = next_address_;
    next_address_ += bytes + kUnit;  // a hole, so that segments do not touch
    reserved_ += bytes;
    return {bytes, address};
  }

  /// Free neighbours within a segment.
  bool touches(Blocks::iterator block, Blocks::iterator next) const {
    return next != blocks_.end() && !block->second.used && !next->second.used &&
           block->first + block->second.bytes == next->first;
  }

  Blocks blocks_;                                            ///< by address
  std::set<std::pair<std::int64_t, std::int64_t>> free_[2];  ///< (bytes, address), small ones and larger ones
  std::int64_t next_address_ = 0;
  std::int64_t reserved_ = 0;
};

}  // namespace

std::int64_t cached_bytes(std::vector<PlannedBuffer> const& buffers) {
  std::vector<std::tuple<std::int64_t, bool, std::size_t>> events;  // (moment, asked for, buffer)
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].bytes == 0 || buffers[i].life.begin >= buffers[i].life.end) continue;
    events.emplace_back(buffers[i].life.begin, true, i);
    events.emplace_back(buffers[i].life.end, false, i);
  }
  std::sort(events.begin(), events.end());
  CachingAllocator allocator;
  std::vector<std::int64_t> address(buffers.size());
  for (auto const& [moment, asked, buffer] : events) {
    if (asked) {
      address[buffer] = allocator.take(buffers[buffer].bytes);
    } else {
      allocator.give(address[buffer]);
    }
  }
  return allocator.reserved();
}

}  // namespace weft::memory_tool
