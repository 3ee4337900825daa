#include "collectives/shm/mailbox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "collectives/shm/doorbell.hpp"
#include "weft/error.hpp"

namespace weft::shm {
namespace {

/// All lanes of a communicator together take about this much; a slot holds at least a page's worth of small messages.
constexpr std::size_t kMemory = std::size_t{4} << 20U;
constexpr std::size_t kLeastSlot = 1024;
constexpr std::size_t kMostSlot = std::size_t{64} << 10U;

std::size_t slot_bytes_for(int size) noexcept {
  auto const lanes = static_cast<std::size_t>(std::max(1, size * (size - 1)));
  return std::clamp(kMemory / lanes / Mailbox::kSlots / kLinePair * kLinePair, kLeastSlot, kMostSlot);
}

}  // namespace

namespace {

/// Which messages go in order: those of one direction to or from one peer.
std::size_t queue_of(Message const& message) noexcept {
  return 2 * static_cast<std::size_t>(message.peer) + (message.direction == Message::Direction::send ? 0 : 1);
}

}  // namespace

/// How far one message of a transfer is.
struct Mailbox::Progress {
  std::size_t moved = 0;  // bytes
  std::size_t total = 0;  // of a message that has started
  bool started = false;
  bool done = false;
};

// Memory: [bells][lanes][slots]. Lanes to oneself are there too: a rank may send to itself.

std::size_t Mailbox::bytes(int size) noexcept {
  auto const ranks = static_cast<std::size_t>(size);
  return ranks * sizeof(Bell) + ranks * ranks * (sizeof(Lane) + kSlots * slot_bytes_for(size));
}

Mailbox::Mailbox(std::shared_ptr<Mapping> mapping, std::size_t offset, Channel& channel)
    : mapping_(std::move(mapping)),
      base_(mapping_->data() + offset),
      channel_(channel),
      slot_bytes_(slot_bytes_for(channel.size())) {}

Mailbox::Bell& Mailbox::bell(int rank) const noexcept {
  return *std::launder(reinterpret_cast<Bell*>(base_) + rank);
}

Mailbox::Lane& Mailbox::lane(int from, int to) const noexcept {
  auto* const lanes = base_ + static_cast<std::size_t>(channel_.size()) * sizeof(Bell);
  return *std::launder(reinterpret_cast<Lane*>(lanes) + from * channel_.size() + to);
}

std::byte* Mailbox::slot(int from, int to, std::uint64_t index) const noexcept {
  auto const ranks = static_cast<std::size_t>(channel_.size());
  auto const which = (static_cast<std::size_t>(from) * ranks + static_cast<std::size_t>(to)) * kSlots + index % kSlots;
  return base_ + ranks * sizeof(Bell) + ranks * ranks * sizeof(Lane) + which * slot_bytes_;
}

void Mailbox::ring(int rank) const noexcept {
  full_fence();  // the counter before the look at the sleepers
  auto& bell = this->bell(rank);
  if (bell.sleepers.load() == 0) return;
  ring_bell(bell.rung);
}

bool Mailbox::can_advance(Message const& message, Progress const& progress) const noexcept {
  if (progress.done) return false;
  auto const sends = message.direction == Message::Direction::send;
  auto const& lane = sends ? this->lane(channel_.rank(), message.peer) : this->lane(message.peer, channel_.rank());
  if (lane.contradicted.load(std::memory_order_relaxed) != 0) return true;
  auto const turn = (sends ? lane.sent : lane.received).load(std::memory_order_acquire);
  if (turn != message.number) return false;
  auto const filled = lane.filled.load(std::memory_order_acquire);
  auto const emptied = lane.emptied.load(std::memory_order_acquire);
  return sends ? filled - emptied < kSlots : filled != emptied;
}

bool Mailbox::advance(Call const& call, Message const& message, Progress& progress) {
  bool moved = false;
  while (can_advance(message, progress)) {
    throw_if_contradicted(call, message);
    moved =
        message.direction == Message::Direction::send ? push(call, message, progress) : pull(call, message, progress);
  }
  return moved;
}

bool Mailbox::push(Call const& /*call*/, Message const& message, Progress& progress) {
  auto& lane = this->lane(channel_.rank(), message.peer);
  auto const index = lane.filled.load(std::memory_order_relaxed);
  auto* const slot = this->slot(channel_.rank(), message.peer, index);
  auto const length = std::min(slot_bytes_ - sizeof(Head), message.bytes - progress.moved);
  new (slot) Head{message.bytes, message.dtype};
  if (length > 0) std::memcpy(slot + sizeof(Head), static_cast<std::byte*>(message.data) + progress.moved, length);
  progress.moved += length;
  progress.done = progress.moved == message.bytes;
  lane.filled.store(index + 1, std::memory_order_release);
  // Last: whoever sees its turn, on another thread of this rank, takes the slot after this one.
  if (progress.done) lane.sent.store(message.number + 1, std::memory_order_release);
  ring(message.peer);
  if (progress.done) ring(channel_.rank());  // another thread's message may be next on this lane
  return true;
}

bool Mailbox::pull(Call const& call, Message const& message, Progress& progress) {
  auto& lane = this->lane(message.peer, channel_.rank());
  auto const index = lane.emptied.load(std::memory_order_relaxed);
  auto const* const slot = this->slot(message.peer, channel_.rank(), index);
  auto const& head = *std::launder(reinterpret_cast<Head const*>(slot));
  auto const fits = message.up_to ? head.bytes <= message.bytes : head.bytes == message.bytes;
  if (!progress.started && (!fits || head.dtype != message.dtype)) {
    lane.contradicted.store(1);
    ring(message.peer);
    auto const size = [](std::size_t bytes, DataType dtype) {
      return fmt::format("{} × {}", bytes / size_of(dtype), to_string(dtype));
    };
    throw Error(
        ErrorCode::mismatch,
        fmt::format("message {} from rank {} to rank {} is {}, but the receiver expects {} ({}); no more messages "
                    "can pass between them",
                    message.number + 1, channel_.name_of(message.peer), channel_.name_of(channel_.rank()),
                    size(head.bytes, head.dtype), size(message.bytes, message.dtype), describe(call)));
  }
  if (!progress.started) progress.total = head.bytes;
  progress.started = true;
  auto const length = std::min(slot_bytes_ - sizeof(Head), progress.total - progress.moved);
  if (length > 0) std::memcpy(static_cast<std::byte*>(message.data) + progress.moved, slot + sizeof(Head), length);
  progress.moved += length;
  progress.done = progress.moved == progress.total;
  lane.emptied.store(index + 1, std::memory_order_release);
  if (progress.done) lane.received.store(message.number + 1, std::memory_order_release);  // last, as above
  ring(message.peer);
  if (progress.done) ring(channel_.rank());
  return true;
}

void Mailbox::throw_if_contradicted(Call const& call, Message const& message) const {
  auto const sends = message.direction == Message::Direction::send;
  auto const from = sends ? channel_.rank() : message.peer;
  auto const to = sends ? message.peer : channel_.rank();
  if (lane(from, to).contradicted.load() == 0) return;
  throw Error(ErrorCode::mismatch,
              fmt::format("{}: an earlier message from rank {} to rank {} was not what its receiver "
                          "expected; make the sizes and types of both sides equal",
                          describe(call), channel_.name_of(from), channel_.name_of(to)));
}

void Mailbox::transfer(Call const& call, std::span<Message const> messages) {
  constexpr std::size_t kFew = 4;
  std::array<Progress, kFew> few{};
  std::vector<Progress> many(messages.size() > kFew ? messages.size() : 0);
  auto const progress = many.empty() ? std::span(few).first(messages.size()) : std::span(many);
  // Messages of one direction and peer move in order: of many, only the first unfinished one of each is looked at.
  std::vector<std::vector<std::size_t>> later(many.empty() ? 0 : 2 * static_cast<std::size_t>(channel_.size()));
  for (std::size_t i = messages.size(); i-- > 0 && !later.empty();) later[queue_of(messages[i])].push_back(i);
  std::array<std::size_t, kFew> few_heads{};
  std::vector<std::size_t> many_heads;
  for (auto& queue : later) {
    if (queue.empty()) continue;
    many_heads.push_back(queue.back());
    queue.pop_back();
  }
  for (std::size_t i = 0; i < few.size(); ++i) few_heads[i] = i;
  auto heads = many.empty() ? std::span(few_heads).first(messages.size()) : std::span(many_heads);
  /// What follows a message that has moved, in its place among the heads; else the last head takes it.
  auto const replace = [&](std::size_t& head) {
    if (!later.empty() && !later[queue_of(messages[head])].empty()) {
      auto& queue = later[queue_of(messages[head])];
      head = queue.back();
      queue.pop_back();
      return;
    }
    head = heads.back();
    heads = heads.first(heads.size() - 1);
  };
  auto const advance_all = [&] {
    bool moved = false;
    for (std::size_t h = 0; h < heads.size();) {
      auto const i = heads[h];
      moved = advance(call, messages[i], progress[i]) || moved;
      progress[i].done ? replace(heads[h]) : static_cast<void>(++h);
    }
    return moved;
  };
  auto const done = [&] { return heads.empty(); };
  auto const ready = [&] {
    return std::any_of(heads.begin(), heads.end(),
                       [&](std::size_t i) { return can_advance(messages[i], progress[i]); });
  };

  auto& bell = this->bell(channel_.rank());
  auto const& patience = channel_.patience(call);
  auto deadline = std::chrono::steady_clock::time_point::max();
  auto nap = kFirstNap;
  int idle = 0;
  while (!done()) {
    if (advance_all()) {
      idle = 0;
      continue;
    }
    if (++idle <= patience.spins) continue;
    if (idle <= patience.spins + patience.yields) {
      if (!yielder_.yield()) idle = patience.spins + patience.yields;
      continue;
    }
    if (deadline == std::chrono::steady_clock::time_point::max()) {
      deadline = std::chrono::steady_clock::now() + call.timeout;
    }
    auto const rung = bell.rung.load();
    bell.sleepers.fetch_add(1);
    if (!ready()) sleep_until_rung(bell.rung, rung, nap);
    bell.sleepers.fetch_sub(1);
    nap = kNap;
    for (std::size_t h = 0; h < heads.size(); ++h) channel_.examine(call, messages[heads[h]].peer, ready, deadline);
  }
}

/// A message that somebody else moves on.
class Mailbox::Letter final : public Transit {
 public:
  Letter(Mailbox& mailbox, Call const& call, Message const& message)
      : mailbox_(mailbox), call_(call), message_(message) {}

  bool advance() override {
    (void)mailbox_.advance(call_, message_, progress_);
    return progress_.done;
  }
  [[nodiscard]] bool withdraw() override { return !progress_.started && progress_.moved == 0; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return progress_.moved; }

 private:
  Mailbox& mailbox_;
  Call const& call_;
  Message const message_;
  Progress progress_;
};

std::unique_ptr<Transit> Mailbox::begin(Call const& call, Message const& message) {
  return std::make_unique<Letter>(*this, call, message);
}

void Mailbox::await(Call const& call, std::function<bool()> const& ready) {
  auto& bell = this->bell(channel_.rank());
  auto const& patience = channel_.patience(call);
  auto nap = kFirstNap;
  for (int idle = 0; !ready(); ++idle) {
    if (idle < patience.spins) continue;
    if (idle < patience.spins + patience.yields) {
      if (!yielder_.yield()) idle = patience.spins + patience.yields;
      continue;
    }
    auto const rung = bell.rung.load();
    bell.sleepers.fetch_add(1);
    auto const come = ready();
    if (!come) sleep_until_rung(bell.rung, rung, nap);
    bell.sleepers.fetch_sub(1);
    if (come) return;
    nap = kNap;
    channel_.throw_if_failed();
  }
}

}  // namespace weft::shm
