#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/bucket_hook.hpp"
#include "weft/bucket_plan.hpp"
#include "weft/communicator.hpp"
#include "weft/device.hpp"
#include "weft/event.hpp"

namespace weft {

/// What a bucket is sent by.
enum class BucketCollective {
  all_reduce,
  /// In place: of a bucket's ranks equal parts each rank has only its own reduced; the rest of gradient() is undefined
  /// after finish().
  reduce_scatter,
  /// The same, and the memory of the rest goes back to the system as soon as a bucket is reduced, until it is written
  /// again; it reads as zeros. Whole pages do: parts of buckets smaller than a few pages stay.
  reduce_scatter_and_release,
};

/// What decides where buckets end, once it is known when gradients become ready.
enum class BucketPolicy {
  caps,  ///< BucketLimits
  /// BucketPlan::optimal(), from the slowest rank's ready times in the first synchronised step, and what transfers
  /// cost over this communicator, which is measured then. BucketLimits hold until then, and where rebuild is false.
  optimal,
};

/// What becomes of tensors that get no gradient in a step. On every rank one without counts as zero where another rank
/// has one.
enum class UnusedGradients {
  zero,  ///< nobody asks: results are the reduced zeros
  /// Ranks find out in each step, by one small all_reduce, who has which: a gradient that no rank has keeps its
  /// contents, and has_gradient() is false; where results are sharded its contents are undefined, as always. Copies
  /// such tensors while they travel.
  find,
  /// The same, found out in the first synchronised step (of all ranks, see begin_join()): from then on each rank has
  /// gradients of the same tensors in every step, and buckets do not wait for the others. If it marks another one,
  /// mark_ready() throws; if it leaves one out, that counts as zero, and finish() throws once the step has ended.
  /// Both name the tensor; the Bucketer goes on.
  fixed,
};

/// How steps are averaged once ranks have run out of data.
enum class JoinDivisor {
  all_ranks,     ///< by all ranks, those that ran out counting as zeros: a step weighs what its data weighs
  active_ranks,  ///< by those that had data: of ReduceOp::avg results times size / active; other operations as they are
};

struct JoinOptions {
  JoinDivisor divisor = JoinDivisor::all_ranks;
  /// Nobody goes on alone: once a rank has run out, every rank's next step throws Error{mismatch} before it sends.
  bool throw_on_early_termination = false;
};

struct BucketerOptions {
  BucketLimits limits{};
  ReduceOp op = ReduceOp::avg;
  bool overlap = true;  ///< false: every bucket is launched by finish(), nothing overlaps
  /// After the first synchronised step, re-plan in the order in which rank 0's gradients became ready; under
  /// BucketPolicy::optimal, in which the slowest rank's did.
  bool rebuild = true;
  /// Where results are sharded, the re-plan comes before the first bucket is sent, so that no shard ever moves: by
  /// finish_launching() or finish() of the first synchronised step, which overlaps nothing.
  BucketCollective collective = BucketCollective::all_reduce;
  /// For reduce_scatter_and_release on the host, and always so on a GPU: whole buckets come and go. gradient() of a
  /// bucket is then valid from the first call for one of its tensors in a step (on the host with contents that are
  /// undefined) until the bucket is launched. Buckets take turns in the same pages, of which two buckets' stay from
  /// step to step; otherwise pages are given back and touched anew. Parts lie by themselves, see shard(), so
  /// micro-steps, which hold all buckets, take memory for both.
  bool come_and_go = false;
  std::optional<Stream> stream{};  ///< absent: the Bucketer owns one communication stream
  BucketPolicy policy = BucketPolicy::caps;
  std::optional<TransferCost> transfer_cost{};  ///< for BucketPolicy::optimal instead of measuring
  UnusedGradients unused = UnusedGradients::zero;
  BucketHook hook{};  ///< sends buckets; all ranks have one, or none has
  /// Where results are sharded: called on the stream with this rank's part of a bucket right behind its collective,
  /// unless that failed; finish() waits for it. Must not throw. On a GPU called on the thread that launches, once the
  /// collective is enqueued: what it enqueues on `stream` comes behind that.
  std::function<void(BufferView)> on_shard{};
  /// Where gradients are. On a GPU (see Communicator) streams wait and the host does not: a bucket leaves after what
  /// `compute` was given before mark_ready(), and what `compute` is given after wait() or finish() comes after the
  /// bucket. Failures surface from later calls, timings() is empty, and a step whose plan stays can be captured.
  /// The host does wait where it has to know what other ranks have: for has_gradient() under UnusedGradients::find (a
  /// step that finds out anew cannot be captured), and in each step of a join. Under BucketPolicy::optimal times are
  /// the GPU's, which the host waits for once, in the first synchronised step. reduce_scatter_and_release keeps parts
  /// in symmetric memory and gives whole buckets back, stream-ordered: see come_and_go.
  Device device{};
  std::optional<Stream> compute{};  ///< absent: the GPU's legacy default stream
  /// On a GPU: has three events recorded around each bucket, for timings_since(). Not for steps that are captured.
  bool timed = false;
};

/// What of BucketerOptions may change between steps.
struct BucketSettings {
  BucketLimits limits{};
  BucketPolicy policy = BucketPolicy::caps;
  bool overlap = true;

  friend bool operator==(BucketSettings const&, BucketSettings const&) = default;
};

/// What happened to one bucket in the last finished step.
struct BucketTiming {
  std::size_t bytes = 0;
  std::chrono::steady_clock::time_point ready;     ///< its last gradient was marked, or finish() gave up waiting for it
  std::chrono::steady_clock::time_point started;   ///< its collective began
  std::chrono::steady_clock::time_point finished;  ///< its collective ended
};

/// Groups gradients into buckets of symmetric memory and all_reduces (or reduce_scatters) each bucket as soon as it and
/// all earlier buckets are full. Gradients are views into the buckets: write a gradient there, mark_ready() it, go on
/// computing, finish().
///
/// A step: mark_ready(i) for each tensor in any order, then finish(). Buckets launch in plan order on every rank, so
/// ranks may become ready in different orders. A step may begin with micro-steps that only accumulate: see set_sync().
/// Results have the same bits whatever the limits, the order and the options.
///
/// Not thread-safe: one thread marks and finishes. From the first mark_ready() of a step to its finish_launching() or
/// finish(), make no other call on the communicator: ranks that become ready in different orders would interleave it
/// differently. After a failed collective every call but the destructor rethrows that failure.
class Bucketer {
 public:
  /// Collective. Plans in reverse spec order (backward visits the last layer first) and allocates the buckets,
  /// zero-filled. `communicator` must outlive the Bucketer and stay where it is.
  /// @throws Error{mismatch} naming the rank and the first tensor when ranks pass different specs, limits or options;
  /// Error{invalid_argument} for what BucketPlan::build() rejects.
  Bucketer(Communicator& communicator, std::vector<TensorSpec> specs, BucketerOptions const& options = {});
  /// Local: waits for the buckets under way, bounded by the communicator's timeout.
  ~Bucketer();
  Bucketer(Bucketer&&) noexcept;
  Bucketer& operator=(Bucketer&&) noexcept;

  [[nodiscard]] std::size_t tensor_count() const noexcept;

  /// Where tensor `index` has its gradient. Valid until the next finish() that rebuilds: see generation().
  /// @throws Error{invalid_argument} for a bad index.
  [[nodiscard]] BufferView gradient(std::size_t index) const;
  /// What bucket `index` of plan() is reduced to here: this rank's part, or where results are not sharded all of it.
  [[nodiscard]] BufferView shard(std::size_t index) const;
  /// Grows when finish() has moved the gradients (once, after the first synchronised step); contents move along.
  [[nodiscard]] std::size_t generation() const noexcept;

  /// Tensor `index` has its gradient of this step; do not touch it until finish().
  /// @throws Error{invalid_argument} for a bad index, one already marked, or after finish_launching().
  void mark_ready(std::size_t index);
  /// Tensor `index` gets no gradient in this pass: instead of mark_ready(), so that its bucket need not wait for
  /// finish(). Gradients of earlier micro-steps stay.
  void mark_unused(std::size_t index);
  /// Some rank had a gradient of tensor `index` in the last finished step (in the step that ends, after wait(index)).
  /// Always true under UnusedGradients::zero.
  [[nodiscard]] bool has_gradient(std::size_t index) const;

  /// Accumulation: while false, mark_ready() only records and finish() ends a micro-step without sending, so gradients
  /// add up locally; the next synchronised finish() sends the sums, of tensors marked in any of the micro-steps. A
  /// switch also ends a micro-step that finish() did not end. set_sync(true) never throws.
  /// @throws Error{invalid_argument} when switched off after a mark_ready() of a synchronised step.
  void set_sync(bool sync);
  [[nodiscard]] bool sync() const noexcept;

  /// Ends the step: tensors that got no gradient count as zero (they are zeroed and sent); waits for every bucket;
  /// rethrows what failed, naming the bucket. All ranks call it. In the first synchronised step it re-plans when
  /// options.rebuild (keeping the first plan, with a warning, when memory for a second set of buckets is lacking).
  void finish();

  /// Waits for the bucket that holds tensor `index` only. @throws Error{invalid_argument} unless finish_launching()
  /// came first.
  void wait(std::size_t index);
  /// On the host: whether wait(index) would return, or throw, at once. @throws as wait() does for its arguments.
  [[nodiscard]] bool has_arrived(std::size_t index) const;
  /// The first half of finish(): launches what is left without waiting. finish() must follow.
  void finish_launching();

  /// Uneven numbers of steps: between begin_join() and end_join(), which all ranks call, a rank that has made all its
  /// synchronised steps calls shadow_step() until it returns false; the others take no notice. Costs one all_reduce of
  /// 4 bytes a step, which nobody waits for but shadows (and everybody under throw_on_early_termination).
  /// @throws Error{invalid_argument} when it is on already, in the middle of a step, and for what options rule out; on
  /// every rank Error{mismatch} where ranks' options differ.
  void begin_join(JoinOptions const& options = {});
  /// Takes part in one step of the ranks that are not through, without gradients: with what micro-steps accumulated
  /// here and nobody sent, if there is any, in which step this rank counts as active. True: results are in gradient(),
  /// the same as on all ranks. False: every rank is through. @throws as finish() does.
  [[nodiscard]] bool shadow_step();
  /// Local. Returns how many synchronised steps this rank made since begin_join(), without shadow_step()s. Never
  /// throws.
  std::size_t end_join() noexcept;

  /// Collective, between steps: goes on with other settings; results keep their bits. Tensors keep their order, and
  /// what micro-steps have accumulated (and the last step's results, where they are not sharded); gradients move, and
  /// generation() grows, where buckets end elsewhere. Under BucketPolicy::optimal the next synchronised step is
  /// observed, and its end re-plans.
  /// @throws before anything is sent Error{invalid_argument} in the middle of a step, during a join and for what
  /// BucketPlan::build() rejects; Error{unsupported} on a GPU, where the order of additions, and so their bits, are
  /// NCCL's by the size of a bucket, and for a re-plan of sharded results, which would move shards within a step; on
  /// every rank Error{mismatch} where settings differ, and Error{out_of_memory}, for a second set of buckets:
  /// everything then is as it was.
  void reconfigure(BucketSettings const& settings);
  [[nodiscard]] BucketSettings settings() const noexcept;
  /// Local: the plan that these would lead to (under BucketPolicy::optimal: at first). @throws as reconfigure() does
  /// before anything is sent.
  [[nodiscard]] BucketPlan plan_under(BucketSettings const& settings) const;

  [[nodiscard]] BucketPlan const& plan() const noexcept;
  /// What the plan was made with, once BucketPolicy::optimal has: equal on all ranks.
  [[nodiscard]] std::optional<TransferCost> transfer_cost() const noexcept;
  /// The last finished step's buckets in launch order; none after a micro-step that sent nothing. After the step that
  /// rebuilt they are those of the plan before.
  [[nodiscard]] std::span<BucketTiming const> timings() const noexcept;
  /// On a GPU with options.timed the same, in the GPU's time, once it is through with the step: `ready` is when compute
  /// came to what follows the last gradient, `started` when the communication stream came to the bucket. `origin` is an
  /// event of that GPU, reached when the host's clock said `at`; without it these are of another day. None after a step
  /// that moved gradients. Asks the GPU, which waits for nothing. @throws Error{invalid_argument} while it is not
  /// through.
  [[nodiscard]] std::vector<BucketTiming> timings_since(Event const& origin,
                                                        std::chrono::steady_clock::time_point at) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
