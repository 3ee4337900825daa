#include "optim/overlap.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft {

std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::span<BufferView const> parameters) {
  struct Range {
    std::uintptr_t first;
    std::uintptr_t end;
    std::size_t index;
  };
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].data == nullptr || parameters[i].count == 0) continue;
    auto const first = reinterpret_cast<std::uintptr_t>(parameters[i].data);
    ranges.push_back({first, first + parameters[i].bytes(), i});
  }
  std::sort(ranges.begin(), ranges.end(), [](Range const& a, Range const& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].end) return std::minmax({ranges[i - 1].index, ranges[i].index});
  }
  return std::nullopt;
}

}  // namespace weft
