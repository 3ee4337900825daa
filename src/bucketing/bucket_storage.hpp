#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "bucketing/bucket_turns.hpp"
#include "weft/bucket_plan.hpp"
#include "weft/buffer.hpp"
#include "weft/communicator.hpp"
#include "weft/memory.hpp"
#include "weft/stream.hpp"

namespace weft {

/// A plan's buckets as symmetric memory, and each tensor's view into them. Move-only.
class BucketStorage {
 public:
  /// Collective: allocates one zero-filled buffer per bucket that has elements. @throws Error{out_of_memory} on every
  /// rank. With a GPU's stream `on` memory is on that GPU, and zeroing and copying are enqueued on the stream.
  BucketStorage(Communicator& communicator, BucketPlan plan, MemoryKind kind = MemoryKind::gradients,
                std::optional<Stream> const& on = {});
  /// For buckets that come and go: only the parts, one for each of `shards` ranks of every bucket, stay in symmetric
  /// memory. The whole of a bucket is there from its first use in a step to its release(). With a GPU's stream that
  /// happens in the order of `on`, and the bucket is zero-filled; else buckets are in BucketTurns, with zero padding.
  BucketStorage(Communicator& communicator, BucketPlan plan, std::optional<Stream> const& on, std::size_t shards);

  [[nodiscard]] BucketPlan const& plan() const noexcept { return plan_; }
  [[nodiscard]] std::size_t bucket_count() const noexcept { return plan_.buckets.size(); }
  /// The whole bucket, padding included.
  [[nodiscard]] BufferView bucket(std::size_t index) const {
    if (comes_and_goes()) fetch(index);
    return buffers_[index].view();
  }
  [[nodiscard]] BufferView tensor(std::size_t index) const {
    if (comes_and_goes()) fetch(bucket_of_[index]);
    return tensors_[index];
  }

  /// Whole buckets are there only while they are used, and parts lie by themselves.
  [[nodiscard]] bool comes_and_goes() const noexcept { return !parts_.empty(); }
  /// Where buckets come and go: what bucket `index` is reduced to.
  [[nodiscard]] BufferView part(std::size_t index) const noexcept { return parts_[index].view(); }
  /// Where buckets come and go: lets the whole bucket go once what was enqueued on `stream` so far is done; on the host
  /// only if `reduced` did not fail, as peers may still be reading. Views of it are no longer valid.
  void release(std::size_t index, Stream& stream, Work const& reduced) const;
  /// No bucket is under way any more.
  void end_step() const {
    if (turns_) turns_->end_step();
  }

  /// Rank `rank`'s part of a bucket that was planned for `ranks` shards.
  [[nodiscard]] BufferView shard(std::size_t index, int rank, int ranks) const noexcept {
    std::size_t const count = bucket(index).count / static_cast<std::size_t>(ranks);
    return bucket(index).slice(static_cast<std::size_t>(rank) * count, count);
  }

  /// For the memory account: says that of bucket `index` only `kept` bytes are still in memory, or all of them again.
  void note_released(std::size_t index, std::size_t kept) const;
  void note_whole(std::size_t index) const { released_[index].set(0); }

  void zero(std::size_t tensor) const;
  /// room_for() returns memory for a copy of a tensor's contents, on the tensor's device; copy_out() copies them there,
  /// copy_back() back.
  [[nodiscard]] Buffer room_for(std::size_t tensor) const;
  void copy_out(std::size_t tensor, Buffer const& to) const;
  void copy_back(std::size_t tensor, Buffer const& from) const;
  /// Takes over every tensor's contents. Both must hold the same tensors.
  void copy_tensors_from(BucketStorage const& other) const;

 private:
  void fetch(std::size_t index) const;
  void lay_out_tensors(std::size_t bucket) const;
  void copy(void* to, BufferView const& from) const;

  BucketPlan plan_;
  std::optional<Stream> on_;
  MemoryKind kind_;
  std::vector<Buffer> parts_;            ///< where whole buckets come and go
  std::unique_ptr<BucketTurns> turns_;   ///< on the host where they do
  mutable std::vector<Buffer> buffers_;  ///< empty while the bucket is not there
  mutable std::vector<BufferView> tensors_;
  std::vector<std::size_t> bucket_of_;          ///< by tensor, where buckets come and go
  mutable std::vector<MemoryCharge> released_;  ///< by bucket
};

}  // namespace weft
