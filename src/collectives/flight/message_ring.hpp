#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/flight/flight_ring.hpp"
#include "collectives/message.hpp"

namespace weft {

/// One recorded message, copied out of the ring. Times are of the steady clock; its epoch stands for an unknown time.
struct MessageEntry {
  std::uint64_t record = 0;  ///< number in the order of starts, from 1, with gaps
  FlightState state = FlightState::empty;
  bool on_stream = false;
  Message message;  ///< Message::data is null
  std::chrono::steady_clock::time_point started;
  std::chrono::steady_clock::time_point finished;
};

/// The last point-to-point messages of one rank. It works as FlightRing does, but messages are under way on several
/// threads at the same time, and end in any order. One that hangs keeps its slot, however many come after it.
class MessageRing {
 public:
  /// `capacity` messages, rounded up to a power of two; 0 records nothing.
  explicit MessageRing(std::size_t capacity);

  /// Records that a message starts. Returns the record's number, for finish(), or 0 where no slot was free. Any thread.
  [[nodiscard]] std::uint64_t start(Message const& message, bool on_stream) noexcept;
  /// Records that it ends. `message`: as it was at start(), except that a receive from any rank now knows the sender.
  void finish(std::uint64_t record, Message const& message, bool on_stream, FlightState state) noexcept;

  /// Every message that could be read whole, in the order of their records. Any thread.
  [[nodiscard]] std::vector<MessageEntry> entries() const;

 private:
  using Word = std::atomic<std::uint64_t>;
  struct alignas(64) Slot {
    Word head{0};   ///< record << 8 | on_stream << 7 | state
    Word shape{0};  ///< peer << 32 | data type << 8 | direction
    Word bytes{0};
    Word number{0};
    Word tag{0};      ///< has a tag << 32 | tag
    Word started{0};  ///< nanoseconds of the steady clock
    Word finished{0};
  };

  [[nodiscard]] static bool read(Slot const& slot, MessageEntry& entry) noexcept;

  std::size_t mask_ = 0;
  std::unique_ptr<Slot[]> slots_;
  Word next_{0};
};

/// The records of messages that complete together. The constructor starts them.
class RecordedTransfer {
 public:
  /// `messages` have to outlive it.
  RecordedTransfer(MessageRing& ring, std::span<Message const> messages, bool on_stream);
  void finish(FlightState state) noexcept;
  [[nodiscard]] std::span<std::uint64_t const> records() const noexcept;

 private:
  [[nodiscard]] std::span<std::uint64_t> own_records() noexcept;

  MessageRing& ring_;
  std::span<Message const> messages_;
  bool on_stream_;
  std::array<std::uint64_t, 2> few_{};
  std::vector<std::uint64_t> many_;  // used in place of few_ where there are more
};

}  // namespace weft
