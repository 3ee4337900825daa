#include "collectives/flight/flight_ring.hpp"

#include <algorithm>
#include <bit>

#include "collectives/flight/flight_clock.hpp"

namespace weft {
namespace {

constexpr std::uint64_t kStateMask = 0x7;
constexpr std::uint64_t kOnStream = 0x8;
constexpr unsigned kHowShift = 4;
constexpr std::uint64_t kHowMask = 0xf;
constexpr unsigned kRankShift = 8;
constexpr std::uint64_t kRankMask = 0x3f;  // a rank of one host, see shm::kMaxRanks
constexpr unsigned kSequenceShift = 14;
static_assert(static_cast<std::uint64_t>(FlightState::failed) <= kStateMask);
static_assert(static_cast<std::uint64_t>(Route::How::places_differ) <= kHowMask);

/// All of a slot's first word but the state.
std::uint64_t head_of(Call const& call) noexcept {
  return (call.sequence << kSequenceShift) | (call.on_stream ? kOnStream : 0);
}

constexpr std::uint64_t bits_of(FlightState state) noexcept {
  return static_cast<std::uint64_t>(state);
}

std::uint64_t bits_of(Route route) noexcept {
  return (static_cast<std::uint64_t>(route.how) << kHowShift) | ((route.rank & kRankMask) << kRankShift);
}

bool is_precise(Call const& call) noexcept {
  return is_timed_precisely(call.contract.count, call.on_stream);
}

}  // namespace

std::string_view to_string(FlightState state) noexcept {
  switch (state) {
    case FlightState::empty: return "empty";
    case FlightState::writing: return "writing";
    case FlightState::enqueued: return "enqueued";
    case FlightState::started: return "started";
    case FlightState::finished: return "finished";
    case FlightState::failed: return "failed";
  }
  return "unknown";
}

FlightRing::FlightRing(std::size_t capacity) {
  if (capacity == 0) return;
  auto const slots = std::bit_ceil(capacity);
  mask_ = slots - 1;
  slots_ = std::make_unique<Slot[]>(slots);
}

void FlightRing::describe(Slot& slot, Call const& call) noexcept {
  PackedContract const packed(call.contract);
  slot.count.store(packed.count, std::memory_order_release);
  slot.rest.store(packed.rest, std::memory_order_release);
}

void FlightRing::enqueue(Call const& call) noexcept {
  if (slots_ != nullptr) write_enqueue(call, flight_time(is_precise(call)));
}

void FlightRing::write_enqueue(Call const& call, std::uint64_t now) noexcept {
  issued_.store(call.sequence, std::memory_order_release);
  // Goes on only if all calls up to the slot's last owner have ended: then nobody else writes to the slot.
  if (call.sequence > ended_.load(std::memory_order_acquire) + mask_ + 1) return;
  auto& slot = slot_of(call.sequence);
  auto const head = head_of(call);
  slot.head.store(head | bits_of(FlightState::writing), std::memory_order_relaxed);
  describe(slot, call);
  slot.enqueued.store(now, std::memory_order_release);
  slot.head.store(head | bits_of(FlightState::enqueued), std::memory_order_release);
}

void FlightRing::write_start(Call const& call) noexcept {
  auto& slot = slot_of(call.sequence);
  auto const head = head_of(call);
  if (slot.head.load(std::memory_order_relaxed) != (head | bits_of(FlightState::enqueued))) {
    // The words are stored with release, so that none of them becomes visible before the head that says `writing`.
    slot.head.store(head | bits_of(FlightState::writing), std::memory_order_relaxed);
    describe(slot, call);
    slot.enqueued.store(0, std::memory_order_release);
  }
  slot.started.store(flight_time(is_precise(call)), std::memory_order_release);
  slot.head.store(head | bits_of(FlightState::started), std::memory_order_release);
}

void FlightRing::write_finish(Call const& call, FlightState state) noexcept {
  bool const precisely = is_precise(call);
  // By the coarse clock a brief call ends at the time it began, so the clock need not be read.
  if (call.brief && !precisely)
    return write_finish(call, state, slot_of(call.sequence).started.load(std::memory_order_relaxed));
  write_finish(call, state, flight_time(precisely));
}

inline void FlightRing::write_finish(Call const& call, FlightState state, std::uint64_t now) noexcept {
  auto& slot = slot_of(call.sequence);
  slot.finished.store(now, std::memory_order_release);
  slot.head.store(head_of(call) | bits_of(state) | bits_of(call.route), std::memory_order_release);
  ended_.store(call.sequence, std::memory_order_release);
  __builtin_prefetch(&slot_of(call.sequence + 1), 1);
}

bool FlightRing::read(Slot const& slot, FlightEntry& entry) noexcept {
  auto const head = slot.head.load(std::memory_order_acquire);
  entry.state = static_cast<FlightState>(head & kStateMask);
  if (entry.state == FlightState::empty || entry.state == FlightState::writing) return false;
  auto const count = slot.count.load(std::memory_order_acquire);
  entry.contract = PackedContract(count, slot.rest.load(std::memory_order_acquire)).unpack();
  entry.sequence = head >> kSequenceShift;
  entry.route.how = static_cast<Route::How>(head >> kHowShift & kHowMask);
  entry.route.rank = static_cast<std::uint8_t>(head >> kRankShift & kRankMask);
  entry.on_stream = (head & kOnStream) != 0;
  entry.enqueued = to_flight_time(slot.enqueued.load(std::memory_order_acquire));
  entry.started =
      to_flight_time(entry.state == FlightState::enqueued ? 0 : slot.started.load(std::memory_order_acquire));
  bool const ended = entry.state == FlightState::finished || entry.state == FlightState::failed;
  entry.finished = to_flight_time(ended ? slot.finished.load(std::memory_order_acquire) : 0);
  return slot.head.load(std::memory_order_relaxed) == head;
}

std::vector<FlightEntry> FlightRing::entries() const {
  constexpr int kAttempts = 16;  // a busy rank may overtake the reader, which then leaves that slot out
  std::vector<FlightEntry> whole;
  for (std::size_t i = 0; i < capacity(); ++i) {
    FlightEntry entry;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (!read(slots_[i], entry)) continue;
      whole.push_back(entry);
      break;
    }
  }
  std::sort(whole.begin(), whole.end(), [](auto const& a, auto const& b) { return a.sequence < b.sequence; });
  return whole;
}

}  // namespace weft
