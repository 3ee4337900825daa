#pragma once

#include <cstddef>
#include <vector>

#include "weft/wire_format.hpp"

namespace weft {

/// The error feedback of a call: what rounding took off the values that this rank rounded, to be added next time.
class WireFeedback::State {
 public:
  std::vector<float> contributions;  ///< of its host's partial results, for the parts that this rank handles
  std::vector<float> results;        ///< of the results of its own part

  /// Starts with zeros where the sizes have changed.
  void fit(std::size_t contributed, std::size_t reduced) {
    if (contributions.size() == contributed && results.size() == reduced) return;
    contributions.assign(contributed, 0);
    results.assign(reduced, 0);
  }
};

}  // namespace weft
