#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include <weft/autotuner.hpp>
#include <weft/trace.hpp>

#include "gpt_model.hpp"
#include "options.hpp"
#include "run_record.hpp"

namespace train_gpt {

/// A run's medians, and what they are measured against.
struct RunSummary {
  RunRecord const* run = nullptr;
  double baseline_compute_ms = 0;  ///< the compute-only run's where one ran beside, else the run's own
  double bound_ms = 0;  ///< max(baseline_compute_ms, compute before the first bucket was ready + communication)
  double vs_weft = 1;   ///< its step over that of weft's run
};

/// `baseline`: the compute-only run interleaved with `run`, or null. `weft`: what the run is compared with.
[[nodiscard]] RunSummary summarise(RunRecord const& run, RunRecord const* baseline, RunRecord const& weft);

/// One table with a line a run, and what its bound means. Its columns are README.md's, as the report's keys are.
[[nodiscard]] std::string comparison_table(std::span<RunSummary const> runs);

/// Writes every figure of the runs. @throws std::runtime_error when the file cannot be written.
/// `memory`: memory_of_ranks(). `tuned`: what --autotune has settled on by now; null: nothing was tried, or is still.
void write_report(std::string const& path, Options const& options, GptParameters const& parameters,
                  std::span<RunSummary const> runs, nlohmann::json const& memory,
                  weft::TuningOutcome const* tuned = nullptr);

/// Adds a step's intervals, named "step 12: forward" or "step 12: bucket 3", so that tools can find the step.
void add_to_trace(weft::Trace& trace, int step, StepTimes const& times, std::span<Traffic const> traffic);

}  // namespace train_gpt
