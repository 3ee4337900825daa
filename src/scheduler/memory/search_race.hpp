#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler/memory/canonical_search.hpp"

namespace weft {

/// Searches in several orders at once and gives each as much work as the others: how soon an order finds a solution
/// differs from problem to problem by orders of magnitude.
class SearchRace {
 public:
  /// `sections` outlives it. threads: at least 1.
  SearchRace(Sections const& sections, int threads);

  struct Result {
    CanonicalSearch::Outcome outcome = CanonicalSearch::Outcome::undecided;
    std::vector<std::int64_t> offsets;  ///< where found
  };

  /// Makes one search per order, with a budget of `budget` each. If several find a solution, that of the first order is
  /// taken, so that the result does not depend on the number of threads; it does where `stopped` ends the searches.
  /// `stopped` is called from several threads.
  [[nodiscard]] Result run(std::int64_t capacity, std::int64_t budget, std::function<bool()> const& stopped) const;

 private:
  Sections const& sections_;
  int threads_;
  std::vector<std::vector<int>> orders_;
};

}  // namespace weft
