#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler/memory/canonical_search.hpp"

namespace weft {

/// Searches in several orders at once, each with as much work as the others: which order finds a solution soon differs
/// from problem to problem by orders of magnitude.
class SearchRace {
 public:
  /// `sections` outlives it. threads: at least 1.
  SearchRace(Sections const& sections, int threads);

  struct Result {
    CanonicalSearch::Outcome outcome = CanonicalSearch::Outcome::undecided;
    std::vector<std::int64_t> offsets;  ///< where found
  };

  /// One search per order, of `budget` each. Of several that find a solution the first order's is taken, so that the
  /// result does not depend on threads; it does where `stopped` ends it. `stopped` is called from several threads.
  [[nodiscard]] Result run(std::int64_t capacity, std::int64_t budget, std::function<bool()> const& stopped) const;

 private:
  Sections const& sections_;
  int threads_;
  std::vector<std::vector<int>> orders_;
};

}  // namespace weft
