#pragma once

#include <cstddef>
#include <vector>

#include "weft/wire_format.hpp"

namespace weft {

/// What rounding took, of what this rank rounds in a call.
class WireFeedback::State {
 public:
  std::vector<float> contributions;  ///< of its host, to the parts that it hands to other hosts, and to its own
  std::vector<float> results;        ///< of its own part

  /// Zeros where they were of other sizes.
  void fit(std::size_t contributed, std::size_t reduced) {
    if (contributions.size() == contributed && results.size() == reduced) return;
    contributions.assign(contributed, 0);
    results.assign(reduced, 0);
  }
};

}  // namespace weft
