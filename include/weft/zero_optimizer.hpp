#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/bucketer.hpp"
#include "weft/gradient_policy.hpp"
#include "weft/optimizer.hpp"
#include "weft/overlap.hpp"

namespace weft {

/// What is sharded (Rajbhandari, Rasley, Ruwase, He: ZeRO: Memory Optimizations Toward Training Trillion Parameter
/// Models, 2020). Results have the same bits either way.
enum class ZeroStage {
  optimizer_states = 1,  ///< states and f32 masters
  gradients = 2,         ///< and gradients: what others own is freed as soon as its bucket is reduced
};

struct ZeroOptions {
  ZeroStage stage = ZeroStage::gradients;
  BucketerOptions buckets{};  ///< but for `collective`, which the stage decides, and on_shard
  OptimizerSettings optimizer{};
  GradientPolicy gradients{};
  /// What gradients are written, summed and sent in: f32 for 16-bit parameters adds up many micro-steps exactly. All
  /// parameters are then of one type. Absent: each parameter's own.
  std::optional<DataType> gradient_dtype{};
};

/// Elements [first, first + count) of a tensor.
struct ShardRange {
  std::size_t first = 0;
  std::size_t count = 0;

  friend bool operator==(ShardRange const&, ShardRange const&) = default;
};

/// Trains replicas of a model whose optimizer is sharded. Parameters and gradients lie in equally laid out buckets of
/// symmetric memory, and of each bucket each rank owns an equal part: it alone keeps its state, and updates it.
///
///   weft::ZeroOptimizer zero(world, {{parameters, weft::AdamWOptions{}}});
///   …forward: zero.wait_parameter(i) before it first reads zero.parameter(i)…
///   …backward: writes zero.gradient(i), then zero.mark_ready(i)…
///   zero.step();
///
/// A bucket is reduce_scattered as soon as it and all earlier ones are full, while backward goes on. step() updates
/// each bucket's shard as soon as it has arrived, then sends the updated parameters, those of the last bucket first:
/// what backward finished last the next forward needs first. They travel while the next forward runs.
///
/// With options.gradients a shard is judged right behind its reduction, while backward goes on and its memory is still
/// in cache; step() waits for all of them, asks all ranks (two numbers), and then updates shard by shard from the last
/// bucket on, each sent as soon as it is updated: two passes over a shard's gradients, one over everything else.
///
/// Parameters are numbered over all groups. What may be touched:
///   parameter(i)   read from wait_parameter(i) to the next step(); written by step() only
///   gradient(i)    written until its mark_ready(); after step() its contents are undefined (zeros if
///                  optimizer.zero_gradients)
/// Both views move once at most, in the first step(), when the observed order makes another plan (see
/// BucketerOptions::rebuild): generation() grows. That step overlaps nothing, and for its duration needs memory for a
/// second set of parameters and of gradients.
///
/// Not thread-safe. From the first mark_ready() of a step to the end of step() make no other call on the communicator.
/// After a failed collective every call but the destructor rethrows that failure.
class ZeroOptimizer {
 public:
  /// Collective. Copies the groups' parameters, then takes rank 0's; theirs are no longer needed. `communicator` must
  /// outlive it and stay where it is.
  /// @throws before anything is sent Error{unsupported|invalid_argument} naming rank and parameter for what Optimizer
  /// refuses; on every rank Error{mismatch} naming the first rank and parameter, group or option that differ from rank
  /// 0's; Error{out_of_memory}
  ZeroOptimizer(Communicator& communicator, std::vector<ParameterGroup> const& groups, ZeroOptions const& options = {});
  /// Local: waits for what is under way, bounded by the communicator's timeout.
  ~ZeroOptimizer();
  ZeroOptimizer(ZeroOptimizer&&) noexcept;
  ZeroOptimizer& operator=(ZeroOptimizer&&) noexcept;

  [[nodiscard]] std::size_t parameter_count() const noexcept;
  /// @throws Error{invalid_argument} for a bad index, as everything that takes one, of a group too.
  [[nodiscard]] BufferView parameter(std::size_t index) const;
  [[nodiscard]] BufferView gradient(std::size_t index) const;
  [[nodiscard]] std::size_t generation() const noexcept;

  /// See Bucketer::mark_ready() and mark_unused().
  void mark_ready(std::size_t index);
  void mark_unused(std::size_t index);
  /// Some rank had a gradient of parameter `index` in the last step; always true under UnusedGradients::zero.
  [[nodiscard]] bool has_gradient(std::size_t index) const;

  /// Ends the step: reduces what is left, updates this rank's shard and returns while the parameters still travel.
  /// Within no_sync() it ends a micro-step and sends nothing. All ranks call it, with inputs of equal value.
  /// A parameter that this rank has no gradient of counts as zero here. One that no rank has: by default its gradient
  /// is zero, so decay and momentum go on; under options.buckets.unused = UnusedGradients::find or fixed it is not
  /// updated, and its state stays as it is. @throws before anything is sent Error{invalid_argument} for inputs that
  /// options.gradients decides; once the step has ended, for what broke the promise of UnusedGradients::fixed.
  void step(StepInputs const& inputs = {});
  /// Of the last step's unscaled gradients, the same on every rank; not finite: that step was skipped. Zero where
  /// options.gradients asks for nothing.
  [[nodiscard]] GradientNorm gradient_norm() const noexcept;

  /// The first half of step(), which all ranks call: returns once all gradients are reduced. Until step(),
  /// gradient_shard() may be read and changed (to look for overflow, to clip). What breaks the promise of
  /// UnusedGradients::fixed step() throws.
  void reduce();
  /// What this rank owns of parameter `index`. Shards are fixed once the first step() or reduce() has come, or if
  /// options.buckets.rebuild is false. @throws Error{invalid_argument} before, as the next two.
  [[nodiscard]] ShardRange shard(std::size_t index) const;
  [[nodiscard]] BufferView parameter_shard(std::size_t index) const;
  [[nodiscard]] BufferView gradient_shard(std::size_t index) const;

  /// Blocks until parameter `index` (all of them) has arrived. Costs nothing when it has.
  void wait_parameter(std::size_t index);
  void wait_parameters();

  /// Runs `body`, passes that each end with step(), without communication: gradients accumulate locally, whole on every
  /// rank in stage 2 too, until the next step() outside. As DataParallel::no_sync().
  template <typename Body>
  void no_sync(Body&& body) {
    struct Restore {
      Bucketer& bucketer;
      bool sync;
      ~Restore() { bucketer.set_sync(sync); }
    } const restore{bucketer(), bucketer().sync()};
    bucketer().set_sync(false);
    std::forward<Body>(body)();
  }

  [[nodiscard]] std::size_t group_count() const noexcept;
  [[nodiscard]] OptimizerOptions const& options(std::size_t group = 0) const;
  /// Of all groups. @throws Error{invalid_argument} for one that is not finite and at least 0.
  void set_lr(double lr);
  void set_lr(std::size_t group, double lr);
  [[nodiscard]] std::int64_t step_count() const noexcept;  ///< steps that were applied
  void set_step_count(std::int64_t step);                  ///< @throws Error{invalid_argument} for one below 0

  [[nodiscard]] std::span<std::string_view const> state_names(std::size_t index) const;

  // For checkpoints. A parameter's master is its f32 original, or where it has none (f32 parameters, or without
  // optimizer.master_weights) its own values as f32. What is set must not change while a step is under way. Setters,
  // and all that is of this rank's shard, throw Error{invalid_argument} on a wrong count and while shards may still
  // move: construct with options.buckets.rebuild = false to load before the first step.

  /// Collective: of the whole parameter, on every rank.
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which);
  [[nodiscard]] std::vector<float> master(std::size_t index);
  /// Local: takes this rank's part of `values`, which are of the whole parameter.
  void set_state(std::size_t index, std::size_t which, std::span<float const> values);
  /// Local, with the same values on every rank: the parameter and its master.
  void set_parameter(std::size_t index, std::span<float const> values);

  /// Local: of shard(index).
  [[nodiscard]] std::vector<float> state_shard(std::size_t index, std::size_t which) const;
  [[nodiscard]] std::vector<float> master_shard(std::size_t index) const;
  void set_state_shard(std::size_t index, std::size_t which, std::span<float const> values);
  /// Sets parameter_shard(index) too; the other ranks have it after share_parameters().
  void set_master_shard(std::size_t index, std::span<float const> values);
  /// Collective: every rank gets all parameters' shards, to be waited for as after step().
  void share_parameters();

  /// Bytes of states and f32 masters on this rank; 0 until shards are fixed.
  [[nodiscard]] std::size_t state_bytes() const noexcept;

  /// The last step's reduce_scatters, in launch order.
  [[nodiscard]] std::span<BucketTiming const> reductions() const noexcept;
  /// The all_gathers, in launch order, of the last step whose parameters were all waited for, by wait_parameters() or
  /// by the step after it.
  [[nodiscard]] std::span<BucketTiming const> gathers() const noexcept;
  /// When the last step updated its shards of buckets.
  [[nodiscard]] std::span<Interval const> updates() const noexcept;
  [[nodiscard]] BucketPlan const& plan() const noexcept;

 private:
  class Impl;
  [[nodiscard]] Bucketer& bucketer() noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
