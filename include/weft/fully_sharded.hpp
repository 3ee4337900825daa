#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/bucketer.hpp"
#include "weft/gradient_policy.hpp"
#include "weft/optimizer.hpp"
#include "weft/sharded_optimizer.hpp"

namespace weft {

/// What is gathered, used and reduced together: the parameters of a layer, say.
struct ShardedUnit {
  std::string name;  ///< what errors call it; one of its own
  std::vector<ParameterGroup> groups;
};

/// How hybrid sharding adds up gradients. On a GPU the order of sums is NCCL's, and both are by_group.
enum class HybridSum {
  /// reduce_scatter within a shard group, then all_reduce of the shard across replicas. Sends least between groups; of
  /// averages over groups, in rank order, the average over replicas.
  by_group,
  /// reduce_scatter over all ranks, then all_gather across replicas: the bits of DataParallel.
  rank_order,
};

struct FullyShardedOptions {
  // Types: f32, bf16 or f16 each. Masters are f32 (optimizer.master_weights) whatever these are.
  std::optional<DataType> parameter_type{};  ///< what is gathered; absent: each parameter's own
  std::optional<DataType> gradient_type{};   ///< what backward writes; absent: what is gathered
  std::optional<DataType> reduce_type{};     ///< what is sent and accumulated; absent: what backward writes

  /// Units that are gathered ahead of the one in use, in the order of the step before (at first: forward in the order
  /// given, backward in reverse).
  std::size_t prefetch = 1;
  /// Most bytes of gathered units at a time, all of them taken at construction; 0: what `prefetch` takes. Units that
  /// are not in use make room where need be, those needed last first.
  std::size_t gather_cap = 0;
  /// false: a unit stays gathered from forward to backward, if the cap allows. A unit that is needed again at once
  /// always does.
  bool reshard_after_forward = true;
  /// Units whose whole gradients are in memory: one that backward writes, the others on their way.
  std::size_t gradient_units = 2;
  /// At least so many bytes for them: where units that are no neighbours are in backward together. 0: what
  /// `gradient_units` neighbours take.
  std::size_t gradient_cap = 0;

  /// Hybrid sharding: groups of so many consecutive ranks share a model out, groups are replicas. 0: all ranks. A rank
  /// that is a group by itself gathers nothing: parameters are read where they are, and the cap does not matter.
  int shard_size = 0;
  HybridSum hybrid_sum = HybridSum::rank_order;

  /// So that the model is whole nowhere, not even at first: writes parameter `index`'s values, in host memory wherever
  /// it is trained. Rank 0 calls it during construction, for one parameter after the other; then parameters need no
  /// memory of their own, on any rank.
  std::function<void(std::size_t index, BufferView const& values)> first_values{};

  OptimizerSettings optimizer{};
  GradientPolicy gradients{};
  /// What becomes of parameters that no rank has a gradient of in a step: zero: they have one of zeros, so decay and
  /// momentum go on. find: they are not updated, and their states stay as they are; costs an all_reduce of a byte a
  /// parameter and step (two under HybridSum::by_group). fixed: the same, found out in the first step; from then on
  /// each rank has gradients of the same parameters.
  UnusedGradients unused = UnusedGradients::zero;
  /// To find mistakes: NaN is written over gathered parameters (copies, that is), whole gradients and gradient shards
  /// as soon as nobody may use them any more.
  bool poison = false;
  std::optional<Stream> gather_stream{};  ///< absent: one of its own, as the next
  std::optional<Stream> reduce_stream{};
  /// On a GPU: where parameters are read and gradients written, and the step runs. Absent: the GPU's legacy default
  /// stream.
  std::optional<Stream> compute{};
  /// On a GPU: has events recorded around gathers, reductions and updates, for gathers_since() and its like. Not for
  /// steps that are captured.
  bool timed = false;
};

/// What of FullyShardedOptions may change between steps.
struct GatherSettings {
  std::size_t prefetch = 1;
  std::size_t gather_cap = 0;
  bool reshard_after_forward = true;

  friend bool operator==(GatherSettings const&, GatherSettings const&) = default;
};

/// Bytes on this rank; fixed but for `whole_gradients`.
struct FullyShardedMemory {
  std::size_t parameter_shards = 0;
  std::size_t gradient_shards = 0;
  std::size_t optimizer = 0;  ///< states and f32 masters
  std::size_t gathered = 0;   ///< the pool that units are gathered into; 0 where a rank is a shard group by itself
  std::size_t gradients = 0;  ///< the pool that backward writes into, and what gradients are converted into
  std::size_t whole_gradients = 0;  ///< of all units, from the first no_sync() on
};

/// Trains replicas of a model none of which is ever whole: of each unit each rank owns an equal part (ZeRO stage 3;
/// Zhao et al.: PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, 2023). A unit is all_gathered before
/// it is used and given up after; its gradients are reduce_scattered as soon as backward has written them. Both travel
/// while others compute, by communicators and streams of their own, so that neither queues behind the other.
///
///   weft::FullySharded model(world, {{"embedding", {{tensors, weft::AdamWOptions{}}}}, {"layer 0", …}, …});
///   for each unit u in order:          model.before_forward(u);  …reads parameter(i)…   model.after_forward(u);
///   for each unit u in reverse order:  model.before_backward(u); …reads parameter(i), writes gradient(i)…
///                                      model.after_backward(u);
///   model.step();
///
/// Parameters are numbered over all groups of all units, groups likewise. What may be touched:
///   parameter(i)   read from before_forward() to after_forward() of its unit, and from before_backward() to
///                  after_backward(). Where it lies differs from use to use.
///   gradient(i)    written from before_backward() to after_backward(): every element of it, or else mark_unused(i).
///                  holds_gradients() says whether it has an earlier micro-step's gradient to add to; else its contents
///                  are undefined.
/// All ranks make the same calls in the same order, about the same units. Units may be used in any order, several times
/// a step, or not at all (then none of their parameters has a gradient).
///
/// Where ranks use units in different orders, or different units, all throw Error{mismatch} naming the units and
/// whether they were meant for forward or backward. It is thrown by the call that first waits for that gather or
/// reduction: before_forward() or before_backward() of the unit, one that needs its room, reduce() or step(). A unit or
/// gradient that not all ranks send for moves nowhere; others, gathered or reduced ahead, may have moved, and a step()
/// without options.gradients may have updated units by then. A backward under no_sync() is compared at the end of the
/// step. After any mismatch the model is of no use: load a checkpoint.
///
/// On a GPU, where all parameters are then (or where their views without memory say), streams wait and the host does
/// not: parameters are read and gradients written on options.compute, between the same calls, and the step runs there.
/// A unit that is given up stays until what was enqueued there by then has used it. Failures surface from later calls;
/// timings are empty; a GradScaler is on the GPU as well. Ranks whose calls differ have differing collectives, which
/// the communicators find within milliseconds, naming both units; what is brought to a step is not compared, nor which
/// units had a backward under no_sync(). Under UnusedGradients::find, and until fixed has found out, the host waits for
/// what other ranks say, and such a step cannot be captured.
///
/// A step from the second on can be recorded in a CUDA graph (weft/cuda_graph.hpp), and launched instead of later ones:
/// wait_gathers() comes before the recording, and last in it, for a graph cannot wait for what others have sent for. It
/// begins with the units that a step leaves here, so after any other pass (a forward that nothing follows) a step
/// comes that is not the graph.
///
/// Several passes before a step() accumulate: each is reduced and its average added to the shard, in the reduce type.
/// Within no_sync() whole gradients add up locally instead.
///
/// Not thread-safe. After a failed collective every call but the destructor rethrows that failure.
class FullySharded : public ShardedOptimizer {
 public:
  /// Collective; copies rank 0's values: the parameters' memory is not needed any more, on other ranks it is not read.
  /// `world` is used only during construction.
  /// @throws before anything is sent Error{unsupported|invalid_argument} naming rank, unit and parameter for what
  /// Optimizer refuses, for a unit without a name of its own, and for one larger than the cap; on every rank
  /// Error{mismatch} naming the first rank and unit, parameter, group or option that differ from rank 0's;
  /// Error{out_of_memory}
  FullySharded(Communicator& world, std::vector<ShardedUnit> const& units, FullyShardedOptions const& options = {});
  /// Local: waits for what is under way, bounded by the communicator's timeout.
  ~FullySharded();
  FullySharded(FullySharded&&) noexcept;
  FullySharded& operator=(FullySharded&&) noexcept;

  [[nodiscard]] std::size_t unit_count() const noexcept;
  [[nodiscard]] std::size_t unit_of(std::size_t index) const;

  /// Bring a unit here, wait for it, and send for the next. Collective, as the other three.
  /// @throws Error{invalid_argument} naming unit and call where it is out of turn (a unit already in use, backward
  /// without forward), and where units in use leave no room under the cap.
  void before_forward(std::size_t unit);
  void before_backward(std::size_t unit);
  /// Gives it up.
  void after_forward(std::size_t unit);
  /// Gives it up and sends its gradients. @throws Error{invalid_argument} too for a gradient against what
  /// UnusedGradients::fixed has found out; mark_unused() it and call again.
  void after_backward(std::size_t unit);

  /// @throws Error{invalid_argument} naming the unit where it is not in use.
  [[nodiscard]] BufferView parameter(std::size_t index) const;
  [[nodiscard]] BufferView gradient(std::size_t index) const;
  [[nodiscard]] bool holds_gradients(std::size_t unit) const;
  /// Parameter `index` gets no gradient in this backward, on this rank: it counts as zero here, and earlier
  /// micro-steps' stay. Other ranks may have one.
  void mark_unused(std::size_t index);
  /// Some rank had a gradient of it in the last step, see options.unused; always true under UnusedGradients::zero.
  [[nodiscard]] bool has_gradient(std::size_t index) const;

  /// Ends the step: updates this rank's shard of each unit as soon as its gradients have arrived (with
  /// options.gradients: once all of them have), and sends for the first units as soon as they are updated. Within
  /// no_sync() it ends a micro-step and does nothing. All ranks call it, with inputs of equal value: these, learning
  /// rates, steps applied and the scaler's state are compared as ranks announce the end of the step. Where they differ
  /// all throw Error{mismatch} naming which and both values: with options.gradients before anything is updated, else
  /// once what arrives has been. Under HybridSum::by_group those throw that are in the shard group of a rank that
  /// differs, or own the same shard; the others as soon as they wait for one of these, at the latest in the next step.
  /// @throws Error{invalid_argument} while a unit is in use, without a backward since the last one, for inputs that
  /// options.gradients decides and for a clip_value or step below what they may be, and may then be called again; once
  /// the step has ended, naming a parameter whose gradient is missing against what UnusedGradients::fixed has found out
  /// (it counted as zero).
  void step(StepInputs const& inputs = {});

  /// The first half of step(): returns once all gradients are reduced (on a GPU: enqueued). Until step(), which must
  /// follow before the next backward, gradient shards may be read and changed (to look for overflow, to clip).
  /// @throws Error{invalid_argument} while a unit is in use, and without a backward since the last step.
  void reduce();
  /// Collective, after reduce(): of all shards of factor·g, counted once where groups are replicas.
  [[nodiscard]] GradientNorm measure_gradients(NormType type = NormType::l2, float factor = 1);

  /// Local: every unit that was sent for is here; on a GPU for what comes behind on options.compute. For CUDA graphs,
  /// see above; what uses a unit waits for it anyway.
  void wait_gathers();

  /// Runs `body`, passes that may each end with step(), without sending gradients: they add up whole on every rank
  /// until the next pass outside, or step(), sends them. The first time it is collective and takes memory for all
  /// gradients.
  template <typename Body>
  void no_sync(Body&& body) {
    struct Restore {
      FullySharded& model;
      bool sync;
      ~Restore() { model.set_sync(sync); }
    } const restore{*this, set_sync(false)};
    std::forward<Body>(body)();
  }

  /// no_sync() for callers whose passes are no function: false begins it, true ends it; returns what it was.
  /// @throws Error{invalid_argument} while a unit is in use.
  bool set_sync(bool sync);

  /// Collective, while no unit is in use: gathers go on with other settings; results keep their bits. Units that were
  /// on their way are sent for again, into another pool where that is of another size.
  /// @throws Error{invalid_argument} as construction does, and while a unit is in use; Error{unsupported} on a GPU; on
  /// every rank of a shard group Error{mismatch} where settings differ, and Error{out_of_memory} with both pools:
  /// everything then is as it was.
  void reconfigure(GatherSettings const& settings);
  [[nodiscard]] GatherSettings gather_settings() const noexcept;
  [[nodiscard]] bool is_on_gpu() const noexcept;
  /// FullyShardedMemory::gathered under other settings.
  [[nodiscard]] std::size_t gathered_bytes_under(GatherSettings const& settings) const;

  [[nodiscard]] FullyShardedMemory memory() const noexcept;
  /// Bytes of units that are gathered or on their way now, and the most there ever were.
  [[nodiscard]] std::size_t gathered_bytes() const noexcept;
  [[nodiscard]] std::size_t peak_gathered_bytes() const noexcept;

  /// Of the last step, in launch order: `ready` is when they were launched. A step's gathers include those that the
  /// step() before it launched; of more than 8192 the last. There are none where a rank is a shard group by itself.
  [[nodiscard]] std::span<BucketTiming const> gathers() const noexcept;
  [[nodiscard]] std::span<BucketTiming const> reductions() const noexcept;
  /// On a GPU with options.timed the same in the GPU's time, see Bucketer::timings_since(): `ready` is where compute
  /// was when they were launched.
  [[nodiscard]] std::vector<BucketTiming> gathers_since(Event const& origin,
                                                        std::chrono::steady_clock::time_point at) const;
  [[nodiscard]] std::vector<BucketTiming> reductions_since(Event const& origin,
                                                           std::chrono::steady_clock::time_point at) const;

 private:
  class Impl;
  [[nodiscard]] Impl& impl() const noexcept;
};

}  // namespace weft
