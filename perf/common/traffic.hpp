#pragma once

#include <cstddef>
#include <vector>

namespace weft::perf {

/// targets[t][i] = sum over s of sources[s][i], for i in [first, last): the loads and stores of a reduction, nothing
/// else. One source and one target make it a copy. `first` and `last` are multiples of 16. `streaming`: stores pass the
/// caches by.
void sum_to_all(std::vector<float*> const& sources, std::vector<float*> const& targets, std::size_t first,
                std::size_t last, bool streaming);

/// Part `index` of `parts` equal ones of `elements`, in whole cache lines of floats.
struct Share {
  std::size_t first;
  std::size_t last;

  Share(std::size_t elements, std::size_t index, std::size_t parts);
};

}  // namespace weft::perf
