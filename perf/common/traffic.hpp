#pragma once

#include <cstddef>
#include <vector>

namespace weft::perf {

/// targets[t][i] = sum over s of sources[s][i], for i in [first, last): the loads and stores of a reduction, and
/// nothing else. With one source and one target it is a copy. `first` and `last` are multiples of 16. `streaming`:
/// stores bypass the caches.
void sum_to_all(std::vector<float*> const& sources, std::vector<float*> const& targets, std::size_t first,
                std::size_t last, bool streaming);

/// Part `index` of `elements` divided into `parts` equal parts, in whole cache lines of floats.
struct Share {
  std::size_t first;
  std::size_t last;

  Share(std::size_t elements, std::size_t index, std::size_t parts);
};

}  // namespace weft::perf
