#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/recompute/rewrite.hpp"

namespace weft {

/// Looks for the cheapest selection whose step fits a budget; plan_recompute() uses it.
class SelectionSearch {
 public:
  SelectionSearch(StepOrder const& step, RecomputeOptions const& options);

  /// The cheapest step that was found and fits; none where none was found.
  [[nodiscard]] std::optional<Rewritten> run(std::int64_t budget);
  /// The step of least peak that any run() met.
  [[nodiscard]] Rewritten const& leanest() const { return leanest_; }

 private:
  struct Tried {
    Selection selection;
    double seconds = 0;
    std::int64_t peak_bytes = 0;
  };

  std::optional<Tried> attempt(Selection const& selection);
  void keep_best(Tried const& tried);
  void try_prices(std::vector<double> const& shortage);
  [[nodiscard]] bool may_free(OpId op) const;
  [[nodiscard]] std::vector<std::int64_t> crossing(std::vector<Place> const& late) const;
  [[nodiscard]] Place last_early_use(OpId op, TensorId tensor, std::vector<Place> const& late) const;
  bool try_segments(std::vector<Place> const& late, std::size_t count);
  void try_layers(std::vector<Place> const& late);
  void try_all_segments(std::vector<Place> const& late);
  void add_until_it_fits(Selection selection);
  [[nodiscard]] bool add_for_peak(Selection& selection, Rewritten const& now, std::vector<bool>& refused) const;
  void take_back(Tried const& from);
  void exchange();
  [[nodiscard]] std::vector<double> shortage_of(std::vector<std::int64_t> const& live) const;
  [[nodiscard]] bool is_over() const;

  StepOrder const& step_;
  RecomputeOptions const& options_;
  std::chrono::steady_clock::time_point began_;
  std::int64_t budget_ = 0;
  Rewritten last_;  ///< the step of the last attempt
  Rewritten leanest_;
  std::optional<Tried> best_;     ///< of those that fit
  std::optional<Tried> nearest_;  ///< of those that do not fit: the one of least peak
  std::vector<Tried> fitting_;    ///< those that fit, by what found them
};

}  // namespace weft
