#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft::perf {

/// The median; of two middle values the upper one. 0 if there are no values.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace weft::perf
