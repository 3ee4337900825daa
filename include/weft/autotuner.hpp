#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/communicator.hpp"

namespace weft {

class DataParallel;
class FullySharded;
class ZeroOptimizer;

/// One setting to try.
struct TuningCandidate {
  std::string name;  ///< what the log and the cache call it, one of its own: "buckets of 4 MiB"
  /// Collective, between steps: from now on the training goes on with it. May throw Error{out_of_memory}, on every rank
  /// and having changed nothing: then it cannot be had.
  std::function<void()> apply;
};

/// What a training can be set to without a bit of its results changing.
struct TuningSpace {
  /// What is trained, and by what: equal for runs that may use one another's findings.
  std::string model;
  /// The first is what is set now; then the more promising ones first, for a short training may not try all.
  std::vector<TuningCandidate> candidates;
};

/// Buckets by caps from 256 KiB to 64 MiB as far as they make a difference, BucketPolicy::optimal, and buckets that are
/// launched at the end of backward. On a GPU nothing but what is set now. `ddp` must outlive what tries it.
[[nodiscard]] TuningSpace tuning_space(DataParallel& ddp);
/// The same without BucketPolicy::optimal, for which shards would move within a step. Where buckets' ends show in the
/// bits (see ZeroOptimizer::may_move_shards()), only when they are launched.
[[nodiscard]] TuningSpace tuning_space(ZeroOptimizer& zero);
/// Units gathered ahead, and whether they stay from forward to backward, as far as that takes no more than
/// `most_gathered_bytes`; 0: twice what the pool takes now. Under a gather_cap that is the limit instead. On a GPU
/// nothing but what is set now.
[[nodiscard]] TuningSpace tuning_space(FullySharded& model, std::size_t most_gathered_bytes = 0);

struct AutotunerOptions {
  std::size_t training_steps = 0;  ///< that this run makes in all
  /// Of those, at most so many are made before it has settled, in (0, 1].
  double most_share = 0.1;
  /// First steps, which nothing is tried in: memory is touched for the first time, buckets find their order.
  std::size_t warm_up = 2;
  /// What a setting's step must be shorter by than the first candidate's to be taken instead, as a share of it, in [0,
  /// 1).
  double least_gain = 0.01;
  /// What else decides how long a step takes, such as the batch: runs of another one measure anew.
  std::string workload{};
};

/// What an Autotuner settled on.
struct TuningOutcome {
  std::string setting;         ///< the candidate's name
  double seconds = 0;          ///< of a step with it; NaN where it was not measured
  std::string standard;        ///< what it was compared with: the first candidate, or that of the earlier run
  double default_seconds = 0;  ///< of a step with that
  std::size_t candidates = 0;  ///< that were tried
  std::size_t steps = 0;       ///< made before it settled
  bool from_cache = false;     ///< an earlier run found it
};

/// Tries settings during the first steps of a training, and goes on with the one whose steps are shortest, by
/// successive halving (Jamieson, Talwalkar: Non-stochastic Best Arm Identification and Hyperparameter Optimization,
/// 2016).
///
///   weft::Autotuner tuner(world, weft::tuning_space(ddp), {.training_steps = steps});
///   for each step: …forward, backward, update…; tuner.end_step();
///
/// All ranks decide alike: of a setting's steps each rank takes the median, of these medians all take the median over
/// ranks, and what follows is the same function of the same figures on each. What was found is kept in
/// Config::autotune_cache (rank 0's), by model, workload, and what the ranks run on; a later run starts with it. Rank 0
/// writes one line when it has settled, whatever the log level.
///
/// Not thread-safe. Of each visit to a setting the first step does not count. Each visit ends with an all_gather of 8
/// bytes a rank, over a communicator of its own.
class Autotuner {
 public:
  /// Collective: applies what an earlier run found, if there is anything. `communicator` is what is trained over.
  /// @throws before anything is sent Error{invalid_argument} naming the option; on every rank Error{mismatch} where
  /// ranks differ in options, model or candidates.
  Autotuner(Communicator& communicator, TuningSpace space, AutotunerOptions const& options);
  ~Autotuner();
  Autotuner(Autotuner&&) noexcept;
  Autotuner& operator=(Autotuner&&) noexcept;

  /// A step has ended; it took the time since the last call of this. All ranks call it after each step, at a point
  /// where candidates may be applied: collective until it has settled, free after that. `counts` is false where
  /// something other than the training took time, such as a checkpoint; ranks may differ in that.
  /// @throws what a candidate's apply() does, but for Error{out_of_memory}, and what a collective does.
  void end_step(bool counts = true);
  /// The same of a step that took so long.
  void end_step(std::chrono::nanoseconds took, bool counts = true);

  [[nodiscard]] bool is_settled() const noexcept { return outcome().has_value(); }
  /// None before it has.
  [[nodiscard]] std::optional<TuningOutcome> const& outcome() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
