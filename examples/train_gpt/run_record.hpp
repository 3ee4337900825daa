#pragma once

#include <span>
#include <string>
#include <vector>

#include <weft/overlap.hpp>

#include "step_times.hpp"

namespace train_gpt {

/// One step's figures on this rank.
struct StepRecord {
  int step = 0;
  float loss = 0.0F;  ///< mean over the global batch
  weft::OverlapReport overlap;
  bool skipped = false;  ///< gradients overflowed
};

/// A run's figures: its steps and their medians.
struct RunRecord {
  std::string name;
  std::string link;
  int ranks = 1;
  double tokens_per_step = 0;
  std::vector<StepRecord> steps;
  int skipped_steps = 0;  ///< of fp16: gradients overflowed

  /// Medians over the steps that count: all but the first two (cold memory, gradients that move into their final
  /// order), as long as more than four are there.
  [[nodiscard]] std::span<StepRecord const> counted() const noexcept;
  [[nodiscard]] double median(double weft::OverlapReport::*figure) const;
  [[nodiscard]] double tokens_per_second() const;
  /// 100 · hidden / communication of the medians; 100 when nothing was communicated.
  [[nodiscard]] double hidden_percent() const;
};

/// A step's collectives of one kind, in launch order.
struct Traffic {
  char const* name;
  std::vector<weft::BucketTiming> buckets;
};

/// The part of each that comes after `start`.
[[nodiscard]] std::vector<weft::BucketTiming> since(weft::TimePoint start, std::span<weft::BucketTiming const> buckets);

[[nodiscard]] weft::OverlapReport overlap_of(StepTimes const& times, std::span<Traffic const> traffic);

}  // namespace train_gpt
