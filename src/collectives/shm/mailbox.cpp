#include "collectives/shm/mailbox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <utility>
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

/// The queue that a message is in. Messages of one queue go in order: those of one direction to or from one peer.
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
      slot_bytes_(slot_bytes_for(channel.size())),
      stores_(static_cast<std::size_t>(channel.size())) {}

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
  full_fence();  // orders the counter before the look at the sleepers
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
  stores_[message.peer].fill(length, [&](kernels::Store store) {
    kernels::copy(slot + sizeof(Head), static_cast<std::byte*>(message.data) + progress.moved, length, store);
  });
  progress.moved += length;
  progress.done = progress.moved == message.bytes;
  lane.filled.store(index + 1, std::memory_order_release);
  // Last, because another thread of this rank that sees its turn come takes the slot after this one.
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
  kernels::copy(static_cast<std::byte*>(message.data) + progress.moved, slot + sizeof(Head), length);
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

/// The messages of a transfer that can be next: for each direction and peer, whose messages move in order, the first
/// that has not moved. With only a few messages all of them are fronts, and nothing is allocated.
class Mailbox::Fronts {
 public:
  Fronts(std::span<Message const> messages, int ranks) : messages_(messages) {
    if (messages.size() <= kFew) {
      for (std::size_t i = 0; i < kFew; ++i) few_[i] = i;
      fronts_ = std::span(few_).first(messages.size());
      progress_ = few_progress_;
      return;
    }
    many_progress_.resize(messages.size());
    progress_ = many_progress_;
    later_.resize(2 * static_cast<std::size_t>(ranks));
    for (std::size_t i = messages.size(); i-- > 0;) later_[queue_of(messages[i])].push_back(i);
    for (auto& queue : later_) {
      if (!queue.empty()) many_.push_back(take(queue));
    }
    fronts_ = many_;
  }
  Fronts(Fronts const&) = delete;
  Fronts& operator=(Fronts const&) = delete;

  [[nodiscard]] bool empty() const noexcept { return fronts_.empty(); }

  /// Moves what can be moved now; true when anything moved. A message that its receiver did not expect is given up, and
  /// the rest goes on, because the other ends of those are waiting.
  bool advance(Mailbox& mailbox, Call const& call) {
    bool moved = false;
    for (std::size_t f = 0; f < fronts_.size();) {
      auto const i = fronts_[f];
      auto over = false;
      try {
        moved = mailbox.advance(call, messages_[i], progress_[i]) || moved;
        over = progress_[i].done;
      } catch (Error const&) {
        if (!first_error_) first_error_ = std::current_exception();
        over = moved = true;
      }
      over ? replace(fronts_[f]) : static_cast<void>(++f);
    }
    return moved;
  }
  void throw_first_error() const {
    if (first_error_) std::rethrow_exception(first_error_);
  }

  [[nodiscard]] bool can_advance(Mailbox const& mailbox) const noexcept {
    return std::any_of(fronts_.begin(), fronts_.end(),
                       [&](std::size_t i) { return mailbox.can_advance(messages_[i], progress_[i]); });
  }

  template <typename Body>
  void for_each_peer(Body const& body) const {
    for (std::size_t const i : fronts_) body(messages_[i].peer);
  }

 private:
  static constexpr std::size_t kFew = 4;

  [[nodiscard]] static std::size_t take(std::vector<std::size_t>& queue) {
    auto const first = queue.back();
    queue.pop_back();
    return first;
  }
  /// Puts the next message of the same queue in place of one that has moved or, where there is none, the last of the
  /// fronts.
  void replace(std::size_t& front) {
    auto* const queue = later_.empty() ? nullptr : &later_[queue_of(messages_[front])];
    if (queue != nullptr && !queue->empty()) {
      front = take(*queue);
      return;
    }
    front = fronts_.back();
    fronts_ = fronts_.first(fronts_.size() - 1);
  }

  std::span<Message const> messages_;
  std::span<Progress> progress_;  // of each message
  std::span<std::size_t> fronts_;
  std::vector<std::vector<std::size_t>> later_;  // by queue_of(), the next last
  std::array<Progress, kFew> few_progress_{};
  std::array<std::size_t, kFew> few_{};
  std::vector<Progress> many_progress_;
  std::vector<std::size_t> many_;
  std::exception_ptr first_error_;
};

/// One wait on this rank's bell, which polls, then yields, then sleeps. The caller looks at what it waits for after
/// each turn.
class Mailbox::Wait {
 public:
  Wait(Mailbox& mailbox, Patience const& patience) : mailbox_(mailbox), patience_(patience) {}

  void begin_again() noexcept { looks_ = 0; }
  /// When the polls ended; valid only once it has slept.
  [[nodiscard]] std::chrono::steady_clock::time_point slow_since() const noexcept { return slow_since_; }

  /// One turn; true when it slept, which it does unless `ready()`.
  template <typename Ready>
  bool once(Ready const& ready) {
    auto const most_looks = patience_.spins + patience_.yields;
    if (++looks_ <= patience_.spins) return false;
    if (looks_ == patience_.spins + 1) slow_since_ = std::chrono::steady_clock::now();
    if (looks_ <= most_looks) {
      auto const yielded = mailbox_.yielder_.yield(patience_.late);
      if (!yielded || std::chrono::steady_clock::now() - slow_since_ > kLongestYielding) looks_ = most_looks;
      return false;
    }
    auto& bell = mailbox_.bell(mailbox_.channel_.rank());
    auto const rung = bell.rung.load();
    bell.sleepers.fetch_add(1);
    auto const sleeps = !ready();
    if (sleeps) sleep_until_rung(bell.rung, rung, std::exchange(nap_, kNap));
    bell.sleepers.fetch_sub(1);
    return sleeps;
  }

 private:
  Mailbox& mailbox_;
  Patience const& patience_;
  std::chrono::nanoseconds nap_ = kFirstNap;
  std::chrono::steady_clock::time_point slow_since_;
  int looks_ = 0;
};

void Mailbox::transfer(Call const& call, std::span<Message const> messages) {
  Fronts fronts(messages, channel_.size());
  Wait wait(*this, channel_.patience(call));
  auto const ready = [&] { return fronts.can_advance(*this); };
  while (!fronts.empty()) {
    if (fronts.advance(*this, call)) {
      wait.begin_again();
    } else if (wait.once(ready)) {
      auto const deadline = wait.slow_since() + call.timeout;  // one limit for each wait, as in collectives
      fronts.for_each_peer([&](int peer) { channel_.examine(call, peer, ready, deadline); });
    }
  }
  fronts.throw_first_error();
}

/// A message that the caller of begin() moves on.
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
  Wait wait(*this, channel_.patience(call));
  while (!ready()) {
    if (wait.once(ready)) channel_.throw_if_failed();
  }
}

}  // namespace weft::shm
