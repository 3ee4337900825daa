#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "bucketing/bucket_storage.hpp"
#include "bucketing/device_timing.hpp"
#include "weft/bucketer.hpp"
#include "weft/communicator.hpp"
#include "weft/event.hpp"

namespace weft {

/// How a bucket is sent, whatever is in it and whenever that is.
class BucketSender {
 public:
  /// Starts a stream where the options have none. `communicator` must outlive this. On a GPU collective.
  BucketSender(Communicator& communicator, BucketerOptions const& options);

  [[nodiscard]] bool sharded() const noexcept { return collective_ != BucketCollective::all_reduce; }
  /// Equal parts that buckets are planned for.
  [[nodiscard]] std::size_t shards() const noexcept;
  /// Buckets are others from now on: what rounding took from them is not.
  void forget_feedback() noexcept { feedback_.clear(); }
  /// Whether buckets are timed from now on, on a GPU.
  void set_timed(bool timed) noexcept { timed_ = timed; }
  [[nodiscard]] bool has_hook() const noexcept { return static_cast<bool>(hook_); }
  [[nodiscard]] Stream& stream() noexcept { return *call_.stream; }
  /// Where gradients on a GPU are written and used; none on the host.
  [[nodiscard]] std::optional<Stream> const& compute() const noexcept { return compute_; }
  /// Throws what has failed on a GPU, as far as it is known; asks nobody.
  void throw_if_failed() const;
  /// What of a bucket is reduced here: all of it, or this rank's part.
  [[nodiscard]] BufferView mine(BufferView const& whole) const noexcept;

  /// The same of a bucket in memory.
  [[nodiscard]] BufferView part(BucketStorage const& storage, std::size_t index) const;

  /// A bucket under way. Of one that has no elements both Works are default ones.
  struct Sent {
    Work done;
    Work begun;                            ///< where a hook sent it: completes when the stream came to it
    std::optional<Event> arrived{};        ///< where one did on a GPU: behind all that it enqueued
    std::optional<DeviceTiming> timing{};  ///< on a GPU, if asked for
  };
  /// Collective, asynchronous: bucket `index`, by the hook if there is one, and behind it what the options say:
  /// on_shard, and freeing what this rank does not own. Throws what the hook does.
  Sent send(BucketStorage const& storage, std::size_t index);
  /// Collective, asynchronous: any memory that divides into shards(), as if it were a bucket without tensors; nothing
  /// follows.
  Work send(BufferView const& whole);

  /// Waits until what follows sent buckets is done; on a GPU compute() does.
  void wait_for_followers();

 private:
  /// On the host: whether anything is enqueued behind buckets.
  [[nodiscard]] bool has_followers() const noexcept;
  [[nodiscard]] Work call_hook(BucketPlan const& plan, std::size_t index, BufferView const& whole,
                               BufferView const& part);
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
  Event behind_all_;                                     ///< of what is sent, where something follows on the host
};

}  // namespace weft
