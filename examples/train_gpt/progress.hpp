#pragma once

#include "run_record.hpp"

namespace train_gpt {

/// Shows each step on standard output: a bar that redraws itself on a terminal, a line every tenth of the way in a log.
/// Rank 0's.
class Progress {
 public:
  /// `first` steps are done already, `steps` is where the run ends.
  Progress(int first, int steps);

  void show(StepRecord const& record, double tokens_per_step);
  /// Keeps what is shown and starts a new line.
  void done() const;

 private:
  int first_;
  int steps_;
  bool terminal_;
};

}  // namespace train_gpt
