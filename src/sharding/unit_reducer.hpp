#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "bucketing/device_timing.hpp"
#include "bucketing/gradient_presence.hpp"
#include "sharding/block_map.hpp"
#include "sharding/compute_side.hpp"
#include "sharding/held_turns.hpp"
#include "sharding/shard_groups.hpp"
#include "sharding/unit_layout.hpp"
#include "weft/bucketer.hpp"
#include "weft/error.hpp"
#include "weft/event.hpp"

namespace weft {

/// Holds the memory in which backward writes units' gradients, and reduces them into this rank's shards. Pool and
/// shards are symmetric memory; everything done to a unit's gradients is queued on one stream. On a GPU it is the
/// compute side that waits, wherever this says "wait" or "blocks". Not thread-safe.
class UnitReducer {
 public:
  struct Options {
    std::size_t units = 2;  ///< whose gradients are in memory at once
    std::size_t cap = 0;    ///< at least so many bytes for their gradients
    Stream stream;
    bool poison = false;
    /// Called on the stream each time a flat's shard has changed, right behind the change, unless that failed. Must not
    /// throw. On a GPU it is called on the host, to enqueue on the stream what comes right behind the change.
    std::function<void(std::size_t flat)> on_shard{};
    ComputeSide compute{};
    bool timed = false;  ///< on a GPU, by events
  };

  /// Collective. Layout and groups must outlive it.
  UnitReducer(ShardGroups& groups, UnitLayout const& layout, Options options);

  /// Backward of a unit begins: its gradients get a place. That is the unit's place for held gradients, if some are
  /// held already or `hold` asks for it, and else one in the pool. Blocks while gradients on their way leave no room.
  /// @throws Error{invalid_argument} where the pool's other gradients are still being written.
  void begin(std::size_t unit, bool hold);
  /// The unit's gradients are complete: sends them, or holds on to them.
  void end(std::size_t unit);
  /// Sends the held gradients. Collective.
  void send_held();
  /// Nothing more is sent in this step; `presence` finds out which parameters have gradients. Collective: ranks that
  /// held different units are found out by end_step().
  void close(GradientPresence& presence);
  /// Collective, once: allocates the memory to hold gradients in.
  void make_holdable();

  /// Where backward writes the gradient of parameter `index`; valid between begin() and end().
  [[nodiscard]] BufferView gradient(std::size_t index) const noexcept;
  [[nodiscard]] bool is_held(std::size_t unit) const noexcept { return states_[unit].held; }

  /// Blocks until the sums of a unit, if it has any, are in its shards.
  void wait_for(std::size_t unit);
  /// Whether wait_for() would return at once. Not on a GPU, where only streams wait.
  [[nodiscard]] bool has_arrived(std::size_t unit) const noexcept;
  /// Units with gradients since end_step(), in the order they were first sent.
  [[nodiscard]] std::vector<std::size_t> const& sent() const noexcept { return sent_; }
  /// Zeroes the shards of units without gradients.
  void zero_unsent() const;
  [[nodiscard]] bool is_sent(std::size_t unit) const noexcept { return states_[unit].summed; }
  /// The stream that reductions run on.
  [[nodiscard]] Stream const& stream() const noexcept { return options_.stream; }
  /// This rank's part of a flat's averages.
  [[nodiscard]] BufferView shard(std::size_t flat) const noexcept { return shards_[flat]; }
  /// The shards have been used; closes the record of this step. After close().
  void end_step();
  /// Waits for what is under way; logs a failure if `log_failures`.
  void drain(bool log_failures) noexcept;

  [[nodiscard]] std::size_t shard_bytes() const noexcept { return shard_memory_.view().bytes(); }
  [[nodiscard]] std::size_t pool_bytes() const noexcept { return pool_.view().bytes() + converted_.view().bytes(); }
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_memory_.view().bytes(); }
  /// The times of the last step's reductions; empty on a GPU.
  [[nodiscard]] std::span<BucketTiming const> timings() const noexcept { return timings_; }
  /// The same on a GPU, see Bucketer::timings_since().
  [[nodiscard]] std::vector<BucketTiming> timings_since(Event const& origin,
                                                        std::chrono::steady_clock::time_point at) const {
    return read_all(device_timings_, origin, at);
  }

 private:
  struct State {
    bool held = false;          ///< held_memory_ has gradients of earlier micro-steps
    bool hold = false;          ///< what backward writes now stays there
    bool in_pool = false;       ///< what backward writes now is in the pool
    std::size_t offset = 0;     ///< of what backward writes now, in the pool or in held_memory_
    bool summed = false;        ///< its shards have sums of this step, or will have
    std::vector<Work> works{};  ///< not waited for
    Event done{};               ///< all that was queued for it
  };
  struct Sending {
    std::size_t unit;
    std::size_t offset;
  };
  struct Launch {
    std::size_t flat;
    Work first;
    Work last;
    std::optional<DeviceTiming> timing{};
  };

  [[nodiscard]] std::size_t pool_capacity() const;
  void compare(Communicator& communicator, GradientPresence& presence);
  void send(std::size_t unit);
  void send_flat(std::size_t unit, std::size_t flat);
  void convert(BufferView const& from, BufferView const& to) const;
  /// Does what follows the reduction of the flat's `part`, which is to be added to its shard or is its shard.
  void settle(std::size_t flat, bool add, BufferView const& part) const;
  void sum_up(BufferView const& shard, BufferView const& part) const;
  [[nodiscard]] Error failure_of(std::size_t unit, Error const& error) const;
  /// If reductions failed, throws the failure of the unit that was sent first: later ones fail because of it.
  void throw_oldest_failure() const;
  void poison(BufferView const& written, BufferView const& whole) const;
  [[nodiscard]] Launch reduce(std::size_t flat, BufferView const& whole, BufferView const& shard,
                              CollectiveOptions const& on);
  [[nodiscard]] Launch reduce_in_rank_order(std::size_t flat, BufferView const& whole, BufferView const& shard,
                                            CollectiveOptions const& on);
  void retire_oldest();
  [[nodiscard]] BufferView flat_of(std::size_t unit, std::size_t flat) const noexcept;

  ShardGroups& groups_;
  UnitLayout const& layout_;
  Options options_;
  BlockMap map_;
  Buffer pool_;
  Buffer converted_;  ///< a flat in the reduce type, where that is not what backward writes
  Buffer shard_memory_;
  Buffer held_memory_;
  std::vector<std::size_t> held_offsets_;  ///< by unit
  std::vector<BufferView> shards_;         ///< by flat
  std::vector<State> states_;              ///< by unit
  HeldTurns held_turns_;
  std::deque<Sending> sending_;  ///< in the pool, oldest first
  std::vector<std::size_t> sent_;
  std::vector<Launch> launches_;
  std::vector<BucketTiming> timings_;
  std::vector<TimedTransfer> device_timings_;  ///< of the last step
};

}  // namespace weft
