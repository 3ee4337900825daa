#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/message.hpp"
#include "collectives/shm/channel.hpp"
#include "collectives/shm/patience.hpp"
#include "collectives/shm/segment.hpp"
#include "collectives/shm/store_choice.hpp"
#include "collectives/transit.hpp"
#include "core/cache_line.hpp"
#include "core/yielder.hpp"

namespace weft::shm {

/// Point-to-point messages: one lane of slots for every ordered pair of ranks. A sender fills slots, the receiver
/// empties them; each tells the other by a counter and rings its bell. A message of up to (slots × slot bytes) is sent
/// without waiting for the receiver; longer ones stream through the slots.
///
/// Any number of threads at a time. A thread works only on messages whose turn has come on their lane.
class Mailbox {
 public:
  static constexpr std::size_t kSlots = 4;

  /// Shared memory that `size` ranks need.
  [[nodiscard]] static std::size_t bytes(int size) noexcept;

  /// `offset`: where in the mapping the mailbox begins, a multiple of kLinePair. Zero-filled memory is its initial
  /// state.
  Mailbox(std::shared_ptr<Mapping> mapping, std::size_t offset, Channel& channel);

  /// Moves all messages, in whatever order their peers are ready. @throws Error{mismatch} at the receiver when a
  /// message has another size or type than expected, and from then on at both ends of that lane; the Channel's
  /// failures.
  void transfer(Call const& call, std::span<Message const> messages);

  /// See Backend.
  [[nodiscard]] std::unique_ptr<Transit> begin(Call const& call, Message const& message);
  void await(Call const& call, std::function<bool()> const& ready);

 private:
  /// What a slot says about its message; the first bytes may lie right behind it, in the same cache line.
  struct Head {
    std::uint64_t bytes = 0;
    DataType dtype = DataType::u8;
  };
  struct Lane {
    alignas(kLinePair) std::atomic<std::uint64_t> filled;    ///< slots so far
    alignas(kLinePair) std::atomic<std::uint64_t> emptied;   ///< slots so far
    std::atomic<std::uint32_t> contradicted;                 ///< a message did not fit what was expected
    alignas(kLinePair) std::atomic<std::uint64_t> sent;      ///< messages; the sender counts
    alignas(kLinePair) std::atomic<std::uint64_t> received;  ///< messages; the receiver counts
  };
  /// What threads of one rank sleep on.
  struct Bell {
    alignas(kLinePair) std::atomic<std::uint32_t> rung;
    std::atomic<std::uint32_t> sleepers;
  };
  struct Progress;
  class Fronts;
  class Wait;
  class Letter;

  [[nodiscard]] Lane& lane(int from, int to) const noexcept;
  [[nodiscard]] std::byte* slot(int from, int to, std::uint64_t index) const noexcept;
  [[nodiscard]] Bell& bell(int rank) const noexcept;
  /// Moves what can be moved now; true when anything moved.
  bool advance(Call const& call, Message const& message, Progress& progress);
  bool push(Call const& call, Message const& message, Progress& progress);
  bool pull(Call const& call, Message const& message, Progress& progress);
  /// Whether advance() would move something, by a look at the lane only.
  [[nodiscard]] bool can_advance(Message const& message, Progress const& progress) const noexcept;
  void ring(int rank) const noexcept;
  void throw_if_contradicted(Call const& call, Message const& message) const;

  std::shared_ptr<Mapping> mapping_;
  std::byte* base_;
  Channel& channel_;
  std::size_t slot_bytes_;
  Yielder yielder_;
  std::vector<StoreChoice> stores_;  ///< for what goes to each rank; used by the thread whose turn it is on that lane
};

}  // namespace weft::shm
