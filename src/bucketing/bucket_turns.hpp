#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "weft/bucket_plan.hpp"
#include "weft/buffer.hpp"
#include "weft/communicator.hpp"
#include "weft/memory.hpp"

namespace weft {

/// Host memory that a plan's buckets use in turn. Within a step a bucket takes memory that a reduced bucket has left,
/// if that is large enough, and else memory of its own. So a step whose buckets leave soon after they come touches only
/// the pages of buckets under way, and finds these pages in place; a step that sends nothing has room for all buckets.
/// Thread-safe.
class BucketTurns {
 public:
  /// How many buckets' memory stays resident between steps: the largest that were used.
  static constexpr std::size_t kKept = 2;

  /// Collective: reserves symmetric memory for every bucket, without any pages yet. It is charged as
  /// MemoryKind::communication while its pages are there. @throws Error{out_of_memory} on every rank.
  BucketTurns(Communicator& communicator, BucketPlan const& plan);

  /// The memory of bucket `index` until send(), the same on every call. Padding is zero; gradients have to be written.
  /// @throws Error{invalid_argument} after send() in this step; Error{out_of_memory} for an account's budget.
  [[nodiscard]] Buffer take(std::size_t index);
  /// Bucket `index` is complete and on its way.
  void send(std::size_t index);
  /// Nobody reads or writes the bucket any more: its memory may be taken by others.
  void leave(std::size_t index);
  /// All buckets that were taken have left. Gives back the pages of all memories but kKept.
  void end_step();

 private:
  struct Memory {
    Buffer buffer;
    MemoryCharge absent;  ///< the part of `buffer`'s charge that is not in memory
    bool resident = false;
  };
  enum class Turn : unsigned char { to_come, here, sent };
  struct Place {
    std::size_t memory = 0;
    Turn turn = Turn::to_come;
  };

  [[nodiscard]] std::optional<std::size_t> left_for(std::size_t bytes);
  void set_resident(Memory& memory, bool resident);
  void zero_padding(std::size_t index, BufferView const& whole) const;

  BucketPlan plan_;
  std::mutex mutex_;
  std::vector<Memory> memories_;   ///< by bucket: its own
  std::vector<Place> places_;      ///< by bucket
  std::vector<std::size_t> left_;  ///< memories that others may take
};

}  // namespace weft
