#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

/// Numbers at positions [0, size), to ranges of which something is added and whose largest is asked for. Each call
/// O(log size).
class RangeMax {
 public:
  explicit RangeMax(std::int32_t size) {
    while (leaves_ < size) leaves_ *= 2;
    most_.assign(static_cast<std::size_t>(leaves_) * 2, 0);
    added_.assign(static_cast<std::size_t>(leaves_) * 2, 0);
    add(size, leaves_, kGone);
  }

  void add(std::int32_t begin, std::int32_t end, std::int64_t value) {
    if (begin < end) add(1, 0, leaves_, begin, end, value);
  }
  [[nodiscard]] std::int64_t max() const { return most_[1]; }
  /// 0 where the range is empty.
  [[nodiscard]] std::int64_t max(std::int32_t begin, std::int32_t end) const {
    return begin < end ? max(1, 0, leaves_, begin, end) : 0;
  }

  /// Added to positions that are not to count: below every sum of bytes.
  static constexpr std::int64_t kGone = -(std::int64_t{1} << 61);

 private:
  void add(std::size_t node, std::int32_t low, std::int32_t high, std::int32_t begin, std::int32_t end,
           std::int64_t value) {
    if (begin <= low && high <= end) {
      added_[node] += value;
      most_[node] += value;
      return;
    }
    std::int32_t const middle = low + (high - low) / 2;
    if (begin < middle) add(2 * node, low, middle, begin, end, value);
    if (end > middle) add(2 * node + 1, middle, high, begin, end, value);
    most_[node] = added_[node] + std::max(most_[2 * node], most_[2 * node + 1]);
  }

  [[nodiscard]] std::int64_t max(std::size_t node, std::int32_t low, std::int32_t high, std::int32_t begin,
                                 std::int32_t end) const {
    if (begin <= low && high <= end) return most_[node];
    std::int32_t const middle = low + (high - low) / 2;
    std::int64_t most = 2 * kGone;
    if (begin < middle) most = std::max(most, max(2 * node, low, middle, begin, end));
    if (end > middle) most = std::max(most, max(2 * node + 1, middle, high, begin, end));
    return most + added_[node];
  }

  std::int32_t leaves_ = 1;
  std::vector<std::int64_t> most_;   ///< of each half, what is added to it included
  std::vector<std::int64_t> added_;  ///< to all of it
};

}  // namespace weft
