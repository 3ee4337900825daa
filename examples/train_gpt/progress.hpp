#pragma once

#include <string>

#include "pace.hpp"
#include "run_record.hpp"

namespace train_gpt {

/// Shows on standard output how training gets on, and what time is left: a bar that redraws itself with each step on a
/// terminal, in a log a line at every tenth of the way and every minute. Rank 0's.
class Progress {
 public:
  /// `first` steps are done already, `steps` is where the run ends.
  Progress(int first, int steps);

  void show(StepRecord const& record, double tokens_per_step);
  /// Keeps what is shown and says how long it took.
  void done() const;

 private:
  void redraw(int done, std::string figures) const;

  int first_;
  int steps_;
  bool terminal_;
  Pace pace_;
};

}  // namespace train_gpt
