#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/call.hpp"
#include "core/cache_line.hpp"

namespace weft {

/// How far a recorded call has come.
enum class FlightState : std::uint8_t { empty, writing, enqueued, started, finished, failed };

[[nodiscard]] std::string_view to_string(FlightState state) noexcept;

/// One recorded call, copied out of the ring. Times are of the steady clock; its epoch stands for an unknown time.
struct FlightEntry {
  std::uint64_t sequence = 0;
  FlightState state = FlightState::empty;
  bool on_stream = false;
  Route route;  ///< of a call that has ended
  Contract contract;
  std::chrono::steady_clock::time_point enqueued;
  std::chrono::steady_clock::time_point started;
  std::chrono::steady_clock::time_point finished;
};

/// The last calls of one rank of a communicator. Writing takes no locks, allocations or system calls; any thread may
/// read meanwhile.
///
/// Call number s is in slot s mod capacity. A slot's first word holds number and state. A writer sets the state to
/// `writing` first and to the true one last, so a reader that finds the same word before and after has read one whole
/// call.
class FlightRing {
 public:
  /// `capacity` calls, rounded up to a power of two; 0 records nothing.
  explicit FlightRing(std::size_t capacity);

  /// Records a call that waits for its stream, or for earlier calls. Does nothing while an earlier call in the same
  /// slot has not ended. For the thread that issues calls.
  void enqueue(Call const& call) noexcept;
  /// The same for a caller that knows the time.
  void enqueue(Call const& call, std::chrono::steady_clock::time_point now) noexcept {
    if (slots_ != nullptr) write_enqueue(call, static_cast<std::uint64_t>(now.time_since_epoch().count()));
  }
  /// Prefetches the slot of a call that will be enqueued soon; useful where another thread starts and ends calls.
  void prepare(std::uint64_t sequence) noexcept {
    if (slots_ == nullptr) return;
    prefetch_for_write(reinterpret_cast<std::byte const*>(&slot_of(sequence)), sizeof(Slot));
  }
  /// Records that a call starts. Calls start and end one after the other, on whichever thread.
  void start(Call const& call) noexcept {
    if (slots_ != nullptr) write_start(call);
  }
  void finish(Call const& call, FlightState state = FlightState::finished) noexcept {
    if (slots_ != nullptr) write_finish(call, state);
  }

  /// The number of the last call that was issued, and of the last one that has ended.
  [[nodiscard]] std::uint64_t issued() const noexcept { return issued_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  [[nodiscard]] std::size_t capacity() const noexcept { return slots_ == nullptr ? 0 : mask_ + 1; }

  /// Every call that could be read whole, in the order of their numbers. Any thread.
  [[nodiscard]] std::vector<FlightEntry> entries() const;

 private:
  using Word = std::atomic<std::uint64_t>;

  struct alignas(kLine) Slot {
    Word head{0};      ///< sequence << 14 | route's rank << 8 | route << 4 | on_stream << 3 | state
    Word count{0};     ///< PackedContract::count
    Word rest{0};      ///< PackedContract::rest
    Word enqueued{0};  ///< nanoseconds of the steady clock
    Word started{0};
    Word finished{0};
  };
  static_assert(sizeof(Slot) == kLine);

  void write_enqueue(Call const& call, std::uint64_t now) noexcept;
  [[gnu::hot]] void write_start(Call const& call) noexcept;
  [[gnu::hot]] void write_finish(Call const& call, FlightState state) noexcept;
  void write_finish(Call const& call, FlightState state, std::uint64_t now) noexcept;
  static void describe(Slot& slot, Call const& call) noexcept;
  [[nodiscard]] Slot& slot_of(std::uint64_t sequence) const noexcept { return slots_[sequence & mask_]; }
  [[nodiscard]] static bool read(Slot const& slot, FlightEntry& entry) noexcept;

  std::size_t mask_ = 0;
  std::unique_ptr<Slot[]> slots_;
  Word issued_{0};
  Word ended_{0};
};

}  // namespace weft
