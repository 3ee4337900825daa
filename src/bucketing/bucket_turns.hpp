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

/// Host memory that a plan's buckets take turns in: within a step each takes what one that is reduced has left, where
/// that is large enough, and else memory of its own. So a step whose buckets leave as they come touches the pages of
/// those under way, and finds them in place; one that sends nothing has room for all. Thread-safe.
class BucketTurns {
 public:
  /// Buckets that stay in memory between steps, the largest that were used.
  static constexpr std::size_t kKept = 2;

  /// Collective: symmetric memory of every bucket, of which no page is there yet, charged as MemoryKind::communication
  /// while its pages are. @throws Error{out_of_memory} on every rank.
  BucketTurns(Communicator& communicator, BucketPlan const& plan);

  /// Memory of bucket `index` until send(): the same however often it is asked for. Padding is zero, gradients are not
  /// there yet. @throws Error{invalid_argument} after send() in this step; Error{out_of_memory} for an account's
  /// budget.
  [[nodiscard]] Buffer take(std::size_t index);
  /// Bucket `index` is complete and on its way.
  void send(std::size_t index);
  /// Nobody reads or writes it any more.
  void leave(std::size_t index);
  /// Every bucket that was here has left. All but kKept give their pages back.
  void end_step();

 private:
  struct Memory {
    Buffer buffer;
    MemoryCharge absent;  ///< of what `buffer` is charged with, as much as is not in memory
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
