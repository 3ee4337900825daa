#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

/// Numbers at the positions [0, size). A value can be added to all numbers of a range, and the largest number of a
/// range can be asked for, each in O(log size).
class RangeMax {
 public:
  explicit RangeMax(std::int32_t size) : RangeMax(std::vector<std::int64_t>(static_cast<std::size_t>(size), 0)) {}
  /// O(size).
  explicit RangeMax(std::vector<std::int64_t> const& values) {
    while (static_cast<std::size_t>(leaves_) < values.size()) leaves_ *= 2;
    auto const leaves = static_cast<std::size_t>(leaves_);
    most_.assign(leaves * 2, kGone);
    added_.assign(leaves, 0);
    std::copy(values.begin(), values.end(), most_.begin() + leaves_);
    for (std::size_t node = leaves; node-- > 1;) most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
  }

  void add(std::int32_t begin, std::int32_t end, std::int64_t value) {
    if (begin >= end) return;
    auto const leaves = static_cast<std::size_t>(leaves_);
    std::size_t const first = static_cast<std::size_t>(begin) + leaves;
    std::size_t const last = static_cast<std::size_t>(end) + leaves;
    for (std::size_t low = first, high = last; low < high; low /= 2, high /= 2) {
      if (low % 2 == 1) add_to(low++, value);
      if (high % 2 == 1) add_to(--high, value);
    }
    sum_above(first);
    sum_above(last - 1);
  }
  [[nodiscard]] std::int64_t max() const { return most_[1]; }
  /// 0 where the range is empty.
  [[nodiscard]] std::int64_t max(std::int32_t begin, std::int32_t end) const {
    return begin < end ? max(1, 0, leaves_, begin, end) : 0;
  }

  /// Add this to a position that is not to count: the sum is below any sum of bytes.
  static constexpr std::int64_t kGone = -(std::int64_t{1} << 61);

 private:
  void add_to(std::size_t node, std::int64_t value) {
    most_[node] += value;
    if (node < added_.size()) added_[node] += value;
  }

  void sum_above(std::size_t node) {
    for (node /= 2; node > 0; node /= 2) {
      most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
    }
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
  std::vector<std::int64_t> most_;   ///< by node: the largest below it, including what was added to this node
  std::vector<std::int64_t> added_;  ///< by node: what was added to all positions below it; leaves have none
};

}  // namespace weft
