#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace weft::shm {

/// Free stretches of some memory, as offsets. Best fit, the lowest of equals; neighbours merge. One thread at a time.
class BlockPool {
 public:
  /// Adds [offset, offset + bytes), which must not be free already.
  void give(std::size_t offset, std::size_t bytes);
  /// Offset of `bytes` that are free no longer; empty when no stretch is that long.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t bytes);
  /// Free bytes that end at `end`.
  [[nodiscard]] std::size_t free_before(std::size_t end) const;

 private:
  using Stretch = std::map<std::size_t, std::size_t>::iterator;
  void forget(Stretch stretch);

  std::map<std::size_t, std::size_t> by_offset_;           // offset → bytes
  std::set<std::pair<std::size_t, std::size_t>> by_size_;  // (bytes, offset)
};

}  // namespace weft::shm
