#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bucketing/bucket_storage.hpp"
#include "bucketing/device_timing.hpp"
#include "weft/bucketer.hpp"
#include "weft/communicator.hpp"
#include "weft/event.hpp"

namespace weft {

/// Sends buckets, whatever is in them and whenever that is: by the hook or the collective that the options ask for.
/// Used by Bucketer.
class BucketSender {
 public:
  /// Starts a stream of its own where the options have none. `communicator` must outlive this. On a GPU collective.
  BucketSender(Communicator& communicator, BucketerOptions const& options);

  [[nodiscard]] bool sharded() const noexcept { return collective_ != BucketCollective::all_reduce; }
  /// Number of equal parts that buckets are planned for.
  [[nodiscard]] std::size_t shards() const noexcept;
  /// Buckets are different ones from now on: forgets what rounding took from the old ones.
  void forget_feedback() noexcept { feedback_.clear(); }
  /// Whether buckets are timed from now on, on a GPU.
  void set_timed(bool timed) noexcept { timed_ = timed; }
  [[nodiscard]] bool has_hook() const noexcept { return static_cast<bool>(hook_); }
  [[nodiscard]] Stream& stream() noexcept { return *call_.stream; }
  /// Where gradients on a GPU are written and used; none on the host.
  [[nodiscard]] std::optional<Stream> const& compute() const noexcept { return compute_; }
  /// Throws the failure of a GPU's calls, as far as it is known; asks nobody for it.
  void throw_if_failed() const;
  /// The part of a bucket that is reduced here: all of it, or this rank's part.
  [[nodiscard]] BufferView mine(BufferView const& whole) const noexcept;

  /// The same for a bucket in memory.
  [[nodiscard]] BufferView part(BucketStorage const& storage, std::size_t index) const;

  /// A bucket under way. Of one that has no elements both Works are default ones.
  struct Sent {
    Work done;
    Work begun;                            ///< where a hook sent it: completes when the stream came to the bucket
    std::optional<Event> arrived{};        ///< where a hook sent it on a GPU: behind all that the hook enqueued
    std::optional<DeviceTiming> timing{};  ///< on a GPU, if asked for
  };
  /// Collective, asynchronous: sends bucket `index`, by the hook if there is one, and enqueues what the options ask for
  /// behind it: on_shard, and freeing what this rank does not own. `here` is as in GradientBucket. Throws what the hook
  /// throws.
  Sent send(BucketStorage const& storage, std::size_t index, std::span<std::uint8_t const> here);
  /// Collective, asynchronous: sends any memory that divides into shards(), as if it were a bucket without tensors;
  /// nothing follows it.
  Work send(BufferView const& whole);

  /// Waits until what was enqueued behind sent buckets is done; on a GPU compute() waits.
  void wait_for_followers();

 private:
  /// On the host: whether anything is enqueued behind buckets.
  [[nodiscard]] bool has_followers() const noexcept;
  [[nodiscard]] Work call_hook(BucketPlan const& plan, std::size_t index, BufferView const& whole,
                               BufferView const& part, std::span<std::uint8_t const> here = {});
  [[nodiscard]] Work collective(BufferView const& whole, BufferView const& part,
                                std::shared_ptr<WireFeedback> feedback = nullptr);
  [[nodiscard]] std::shared_ptr<WireFeedback> const& feedback_of(std::size_t bucket);

  Communicator& communicator_;
  BucketCollective collective_;
  ReduceOp op_;
  std::function<void(BufferView)> on_shard_;
  bool timed_;
  std::optional<Stream> compute_;
  CollectiveOptions call_;
  BucketHook hook_;
  std::vector<std::shared_ptr<WireFeedback>> feedback_;  ///< by bucket
  Event behind_all_;  ///< behind everything sent, where something follows on the host
};

}  // namespace weft
