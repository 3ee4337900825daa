#include "collectives/flight/message_ring.hpp"

#include <algorithm>
#include <bit>

#include "collectives/flight/flight_clock.hpp"

namespace weft {
namespace {

constexpr std::uint64_t kMessageStateMask = 0x7f;
constexpr std::uint64_t kMessageOnStream = 0x80;
constexpr std::uint64_t kHasTag = std::uint64_t{1} << 32U;

std::uint64_t head_of(std::uint64_t record, bool on_stream, FlightState state) noexcept {
  return (record << 8U) | (on_stream ? kMessageOnStream : 0) | static_cast<std::uint64_t>(state);
}

std::uint64_t shape_of(Message const& message) noexcept {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(message.peer)) << 32U) |
         (static_cast<std::uint64_t>(message.dtype) << 8U) | static_cast<std::uint64_t>(message.direction);
}

FlightState state_of(std::uint64_t head) noexcept {
  return static_cast<FlightState>(head & kMessageStateMask);
}

}  // namespace

MessageRing::MessageRing(std::size_t capacity) {
  if (capacity == 0) return;
  auto const slots = std::bit_ceil(capacity);
  mask_ = slots - 1;
  slots_ = std::make_unique<Slot[]>(slots);
}

std::uint64_t MessageRing::start(Message const& message, bool on_stream) noexcept {
  constexpr int kAttempts = 8;  // passes over slots of messages that are still under way
  if (slots_ == nullptr) return 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto const record = next_.fetch_add(1, std::memory_order_relaxed) + 1;
    auto& slot = slots_[record & mask_];
    auto head = slot.head.load(std::memory_order_acquire);
    if (state_of(head) == FlightState::started || state_of(head) == FlightState::writing) continue;
    if (!slot.head.compare_exchange_strong(head, head_of(record, on_stream, FlightState::writing))) continue;
    slot.shape.store(shape_of(message), std::memory_order_release);
    slot.bytes.store(message.bytes, std::memory_order_release);
    slot.number.store(message.number, std::memory_order_release);
    slot.tag.store(message.has_tag ? kHasTag | static_cast<std::uint32_t>(message.tag) : 0, std::memory_order_release);
    slot.started.store(flight_time(message.bytes / size_of(message.dtype), on_stream), std::memory_order_release);
    slot.finished.store(0, std::memory_order_release);
    slot.head.store(head_of(record, on_stream, FlightState::started), std::memory_order_release);
    return record;
  }
  return 0;
}

void MessageRing::finish(std::uint64_t record, Message const& message, bool on_stream, FlightState state) noexcept {
  if (record == 0) return;
  auto& slot = slots_[record & mask_];
  if (message.has_tag) {  // a Messenger's message, whose sender may have been unknown at the start
    slot.shape.store(shape_of(message), std::memory_order_release);
    slot.number.store(message.number, std::memory_order_release);
  }
  slot.finished.store(flight_time(message.bytes / size_of(message.dtype), on_stream), std::memory_order_release);
  slot.head.store(head_of(record, on_stream, state), std::memory_order_release);
}

bool MessageRing::read(Slot const& slot, MessageEntry& entry) noexcept {
  auto const head = slot.head.load(std::memory_order_acquire);
  entry.state = state_of(head);
  if (entry.state == FlightState::empty || entry.state == FlightState::writing) return false;
  auto const shape = slot.shape.load(std::memory_order_acquire);
  entry.record = head >> 8U;
  entry.on_stream = (head & kMessageOnStream) != 0;
  entry.message = {.direction = static_cast<Message::Direction>(shape & 0xffU),
                   .dtype = static_cast<DataType>((shape >> 8U) & 0xffU),
                   .peer = static_cast<int>(static_cast<std::uint32_t>(shape >> 32U)),
                   .bytes = slot.bytes.load(std::memory_order_acquire),
                   .number = slot.number.load(std::memory_order_acquire)};
  auto const tag = slot.tag.load(std::memory_order_acquire);
  entry.message.has_tag = (tag & kHasTag) != 0;
  entry.message.tag = static_cast<int>(static_cast<std::uint32_t>(tag));
  entry.started = to_flight_time(slot.started.load(std::memory_order_acquire));
  bool const ended = entry.state == FlightState::finished || entry.state == FlightState::failed;
  entry.finished = to_flight_time(ended ? slot.finished.load(std::memory_order_acquire) : 0);
  return slot.head.load(std::memory_order_relaxed) == head;
}

RecordedTransfer::RecordedTransfer(MessageRing& ring, std::span<Message const> messages, bool on_stream)
    : ring_(ring), messages_(messages), on_stream_(on_stream) {
  if (messages.size() > few_.size()) many_.resize(messages.size());
  auto const records = own_records();
  for (std::size_t i = 0; i < records.size(); ++i) records[i] = ring_.start(messages_[i], on_stream_);
}

void RecordedTransfer::finish(FlightState state) noexcept {
  auto const records = own_records();
  for (std::size_t i = 0; i < records.size(); ++i) ring_.finish(records[i], messages_[i], on_stream_, state);
}

std::span<std::uint64_t> RecordedTransfer::own_records() noexcept {
  return many_.empty() ? std::span(few_).first(messages_.size()) : std::span(many_);
}

std::span<std::uint64_t const> RecordedTransfer::records() const noexcept {
  return many_.empty() ? std::span<std::uint64_t const>(few_).first(messages_.size()) : std::span(many_);
}

std::vector<MessageEntry> MessageRing::entries() const {
  constexpr int kAttempts = 16;  // a busy rank may overtake the reader
  std::vector<MessageEntry> whole;
  for (std::size_t i = 0; slots_ != nullptr && i <= mask_; ++i) {
    MessageEntry entry;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (!read(slots_[i], entry)) continue;
      whole.push_back(entry);
      break;
    }
  }
  std::sort(whole.begin(), whole.end(), [](auto const& a, auto const& b) { return a.record < b.record; });
  return whole;
}

}  // namespace weft
