#pragma once

#include <span>
#include <string>

#include <weft/trace.hpp>

#include "gpt_model.hpp"
#include "options.hpp"
#include "run_record.hpp"

namespace train_gpt {

/// A run's medians, and what they are measured against.
struct RunSummary {
  RunRecord const* run = nullptr;
  double compute_ms = 0;  ///< of the bound: the compute-only baseline's where one ran beside, else the run's own
  double bound_ms = 0;    ///< max(compute_ms, compute before the first bucket was ready + communication)
};

/// `baseline`: the compute-only run interleaved with `run`, or null.
[[nodiscard]] RunSummary summarise(RunRecord const& run, RunRecord const* baseline);

/// One table, the first run being what the others are compared with.
[[nodiscard]] std::string comparison_table(std::span<RunSummary const> runs);

/// Writes every figure of the runs. @throws std::runtime_error when the file cannot be written.
void write_report(std::string const& path, Options const& options, GptModel const& model,
                  std::span<RunSummary const> runs);

/// Adds a step's intervals, named "step 12: forward" or "step 12: bucket 3", so that tools can find the step.
void add_to_trace(weft::Trace& trace, int step, StepTimes const& times, std::span<weft::BucketTiming const> buckets);

}  // namespace train_gpt
