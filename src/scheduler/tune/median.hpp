#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace weft {

/// The median; of an even number of values the mean of the middle two; NaN where there are none or one of them is NaN.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty() || std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); })) {
    return std::nan("");
  }
  std::sort(values.begin(), values.end());
  std::size_t const middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace weft
