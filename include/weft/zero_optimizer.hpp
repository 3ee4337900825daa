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
#include "weft/sharded_optimizer.hpp"

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
/// On a GPU, where all parameters are then, streams wait and the host does not: gradients are written and parameters
/// read on options.buckets.compute, the step runs there, and what follows wait_parameter() on it comes after the
/// bucket. Failures surface from later calls; timings are empty; a GradScaler is on the GPU as well. In stage 2
/// the gradients of a bucket are in memory from the first gradient(i) of one of them in a step to its reduction: ask
/// for views anew in each step. BucketerOptions::device says where the host does wait. A step from the second
/// on can be recorded in a CUDA graph: wait_parameters() comes before the recording, and last in it.
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
class ZeroOptimizer : public ShardedOptimizer {
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
  ///
  /// Ranks that differ: inputs, learning rates, steps applied and the scaler's state are compared by the tag of a call
  /// that is made anyway (not on a GPU). Where they differ all ranks throw Error{mismatch} naming which and both
  /// values:
  /// - with options.gradients: step(), before it updates anything;
  /// - without options.buckets.overlap and, once it has updated moments, with Lamb: step();
  /// - else, as shards are updated while gradients still arrive: whatever first waits for parameters, before any was
  ///   sent.
  ///
  /// Missing gradients: a parameter that this rank has no gradient of counts as zero here. One that no rank has: by
  /// default its gradient is zero, so decay and momentum go on; under options.buckets.unused = UnusedGradients::find or
  /// fixed it is not updated, and its state stays as it is.
  ///
  /// @throws before anything is sent Error{invalid_argument} for inputs that
  /// options.gradients decides and for a clip_value or step below what they may be, and may then be called again; once
  /// the step has ended, for what broke the promise of UnusedGradients::fixed.
  void step(StepInputs const& inputs = {});

  /// The first half of step(), which all ranks call: returns once all gradients are reduced. Until step(),
  /// gradient_shard() may be read and changed (to look for overflow, to clip). What breaks the promise of
  /// UnusedGradients::fixed step() throws.
  void reduce();

  /// Blocks until parameter `index` (all of them) has arrived. Costs nothing when it has. A run ends with
  /// wait_parameters(): what fails in its last step is thrown there, where the destructor can but log a warning.
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

  /// Collective, between steps: goes on with other buckets; results keep their bits. Where buckets end elsewhere, what
  /// ranks own moves, states and masters by an all_gather of each, and views do: generation() grows, and shard() of
  /// every parameter is another. For that time it needs memory for a second set of parameters, gradients and states.
  /// @throws before anything is sent Error{invalid_argument} in the middle of a step, between reduce() and step(), and
  /// as Bucketer::reconfigure() does, as for Error{unsupported|mismatch}; Error{unsupported} for other buckets where
  /// their ends show in the bits of a step: under Lamb, GradientPolicy::max_norm and 8-bit states; on every rank
  /// Error{out_of_memory}: everything then is as it was.
  void reconfigure(BucketSettings const& settings);
  [[nodiscard]] BucketSettings bucket_settings() const noexcept;
  /// Whether buckets may end elsewhere, see above.
  [[nodiscard]] bool may_move_shards() const noexcept;

  /// The last step's reduce_scatters, in launch order.
  [[nodiscard]] std::span<BucketTiming const> reductions() const noexcept;
  /// The all_gathers, in launch order, of the last step whose parameters were all waited for, by wait_parameters() or
  /// by the step after it.
  [[nodiscard]] std::span<BucketTiming const> gathers() const noexcept;
  /// On a GPU with options.buckets.timed the same in the GPU's time, see Bucketer::timings_since(): `ready` is when
  /// compute had updated the bucket. updates_since() is then of the last step.
  [[nodiscard]] std::vector<BucketTiming> reductions_since(Event const& origin,
                                                           std::chrono::steady_clock::time_point at) const;
  [[nodiscard]] std::vector<BucketTiming> gathers_since(Event const& origin,
                                                        std::chrono::steady_clock::time_point at) const;
  [[nodiscard]] BucketPlan const& plan() const noexcept;

 private:
  class Impl;
  [[nodiscard]] Impl& impl() const noexcept;
  [[nodiscard]] Bucketer& bucketer() noexcept;
};

}  // namespace weft
