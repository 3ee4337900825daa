#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace weft::shm {

/// The free stretches of some memory (a SharedHeap's), as offsets. Gives out the best fit, the lowest of equals; free
/// neighbours merge. One thread at a time.
class BlockPool {
 public:
  /// Adds [offset, offset + bytes), which must not be free already.
  void give(std::size_t offset, std::size_t bytes);
  /// Takes `bytes` in a row and returns their offset; empty when no stretch is that long.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t bytes);
  /// Length of the free stretch that ends at `end`; 0 when there is none.
  [[nodiscard]] std::size_t free_before(std::size_t end) const;

 private:
  using Stretch = std::map<std::size_t, std::size_t>::iterator;
  void forget(Stretch stretch);

  std::map<std::size_t, std::size_t> by_offset_;           // offset → bytes
  std::set<std::pair<std::size_t, std::size_t>> by_size_;  // (bytes, offset)
};

}  // namespace weft::shm
