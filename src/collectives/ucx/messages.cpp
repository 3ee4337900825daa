// Point-to-point messages over UCX. A message is an envelope, which carries the first 2 KiB and is sent at once,
// followed by the rest as one transfer, from memory to memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/ucx/leftover.hpp"
#include "collectives/ucx/ucx_backend.hpp"

namespace weft::ucx {

using p2p::at;

namespace {

constexpr std::size_t kInEnvelope = Envelope::kCapacity;
/// Longest nap while messages may also come by the inner level, of which UCX does not know.
constexpr std::chrono::milliseconds kOuterNap{1};

/// Leaves the sequence number out: it counts calls, not messages.
Purpose purpose_of_message(Call const& call) {
  Purpose purpose;
  purpose.timeout = call.timeout;
  purpose.describe = [&call] { return weft::describe(call); };
  purpose.beside_computation = call.on_stream && !call.waited_for;
  return purpose;
}

}  // namespace

/// A message on its way, with all memory that UCX uses for it.
class UcxBackend::Passage {
 public:
  /// `staged`: the message's memory may be freed before UCX has finished, so UCX works on a copy.
  Passage(UcxBackend& backend, Call const& call, Message const& message, bool staged)
      : backend_(backend), call_(call), message_(message), staged_(staged), memory_(std::make_shared<Leftover>()) {}

  [[nodiscard]] int peer() const noexcept { return message_.peer; }
  [[nodiscard]] std::size_t bytes() const noexcept { return message_.bytes; }
  [[nodiscard]] bool done() const noexcept { return done_; }
  [[nodiscard]] bool sends() const noexcept { return message_.direction == Message::Direction::send; }
  [[nodiscard]] std::shared_ptr<Leftover> const& memory() const noexcept { return memory_; }

  /// Moves what can be moved now. True once the message is complete.
  bool advance() {
    if (done_) return true;
    if (!started_) start();
    started_ = true;
    if (!opened_) {
      if (!is_through(memory_->envelope_operation)) return false;
      opened_ = true;
      if (!sends()) open();
    }
    if (!is_through(memory_->body_operation)) return false;
    if (!sends() && memory_->body != nullptr && later_bytes() > 0) {
      std::memcpy(at(message_.data, kInEnvelope), memory_->body.get(), later_bytes());
    }
    return done_ = true;
  }

  /// Takes back a receive of which advance() has seen nothing yet. False if it has, or if this is a send.
  [[nodiscard]] bool withdraw() {
    if (!started_) return true;
    if (sends() || opened_) return false;
    auto& operation = memory_->envelope_operation;
    backend_.channel_.worker().cancel(operation);
    backend_.channel_.worker().progress();
    if (!operation.is_done()) return false;
    if (operation.status() == UCS_OK) {
      backend_.returned_envelopes_.put(peer(), message_.number, memory_->envelope);
    }
    started_ = false;
    return true;
  }

 private:
  [[nodiscard]] std::size_t later_bytes() const noexcept {
    return message_.bytes > kInEnvelope ? message_.bytes - kInEnvelope : 0;
  }
  [[nodiscard]] std::size_t now_bytes() const noexcept { return message_.bytes - later_bytes(); }
  [[nodiscard]] Worker& worker() const noexcept { return backend_.channel_.worker(); }
  [[nodiscard]] bool is_through(Pending const& operation) const {
    if (!operation.is_done()) return false;
    static_cast<void>(backend_.channel_.check(purpose_of_message(call_), operation));
    return true;
  }
  [[nodiscard]] Tag tag() const noexcept {
    return {Tag::Kind::message, sends() ? backend_.rank() : peer(), static_cast<std::uint32_t>(message_.number)};
  }

  void start() {
    auto& envelope = memory_->envelope;
    if (!sends() && backend_.returned_envelopes_.take(peer(), message_.number, envelope)) return;
    auto* const first = reinterpret_cast<std::byte*>(&envelope);
    if (!sends()) {
      return worker().start_recv(memory_->envelope_operation, peer(), tag(), {first, sizeof envelope});
    }
    envelope.bytes = message_.bytes;
    envelope.dtype = static_cast<std::uint64_t>(message_.dtype);
    if (message_.bytes > 0) std::memcpy(envelope.payload.data(), message_.data, now_bytes());
    auto const used = sizeof envelope - kInEnvelope + now_bytes();
    worker().start_send(memory_->envelope_operation, peer(), tag(), {first, used});
    if (later_bytes() == 0) return;
    if (staged_) {
      memory_->body.reset(new std::byte[later_bytes()]);
      std::memcpy(memory_->body.get(), at(message_.data, kInEnvelope), later_bytes());
    }
    // The body leaves only when the receiver asks for it. A receiver that refuses the message says so before it asks,
    // so that the sender hears of the refusal first.
    worker().start_send(memory_->body_operation, peer(), tag(), {body(), later_bytes()}, Worker::Sent::asked_for);
  }

  [[nodiscard]] std::byte* body() const noexcept {
    return memory_->body != nullptr ? memory_->body.get() : at(message_.data, kInEnvelope);
  }

  void open() {
    auto const& envelope = memory_->envelope;
    auto const dtype = static_cast<DataType>(envelope.dtype);
    auto const fits = message_.up_to ? envelope.bytes <= now_bytes() : envelope.bytes == message_.bytes;
    if (!fits || dtype != message_.dtype) refuse(envelope, dtype);
    if (message_.up_to) message_.bytes = envelope.bytes;
    if (message_.bytes > 0) std::memcpy(message_.data, envelope.payload.data(), now_bytes());
    if (later_bytes() == 0) return;
    if (staged_) memory_->body.reset(new std::byte[later_bytes()]);
    worker().start_recv(memory_->body_operation, peer(), tag(), {body(), later_bytes()});
  }

  [[noreturn]] void refuse(Envelope const& envelope, DataType dtype) {
    backend_.channel_.contradict(peer());
    if (envelope.bytes > kInEnvelope) {  // the sender waits until the rest is taken, so take and discard it
      worker().start_recv(memory_->body_operation, peer(), tag(), {});
      backend_.leave_behind(memory_);
    }
    auto const size = [](std::size_t bytes, DataType type) {
      return fmt::format("{} × {}", bytes / size_of(type), to_string(type));
    };
    done_ = true;
    throw Error(ErrorCode::mismatch,
                fmt::format("message {} from rank {} to rank {} is {}, but the receiver expects {} ({}); no more "
                            "messages can pass between them",
                            message_.number + 1, peer(), backend_.rank(), size(envelope.bytes, dtype),
                            size(message_.bytes, message_.dtype), describe(call_)));
  }

  UcxBackend& backend_;
  Call const& call_;
  Message message_;
  bool staged_;
  std::shared_ptr<Leftover> memory_;
  bool started_ = false;
  bool opened_ = false;
  bool done_ = false;
};

void UcxBackend::transfer(Call const& call, std::span<Message const> messages) {
  std::vector<Passage> passages;
  passages.reserve(messages.size());
  for (auto const& message : messages) passages.emplace_back(*this, call, message, false);
  auto const purpose = purpose_of_message(call);
  int waited_for = messages.empty() ? rank() : messages.front().peer;
  auto const throw_if_contradicted = [&] {
    for (auto const& one : passages) {
      if (!channel_.contradicted(one.peer())) continue;
      throw Error(ErrorCode::mismatch,
                  fmt::format("{}: an earlier message between ranks {} and {} was not what its receiver expected; make "
                              "the sizes and types of both sides equal",
                              describe(call), rank(), one.peer()));
    }
  };
  auto const advance_all = [&] {
    bool done = true;
    for (auto& one : passages) {
      if (one.advance()) continue;
      if (done) waited_for = one.peer();
      done = false;
    }
    throw_if_contradicted();
    return done;
  };
  try {
    channel_.throw_if_failed();
    throw_if_contradicted();
    channel_.await(purpose, advance_all, waited_for);
  } catch (...) {  // any exception, also of exhausted memory: UCX still uses what the passages hold
    give_up(purpose, passages);
    throw;
  }
}

void UcxBackend::give_up(Purpose const& purpose, std::span<Passage> passages) noexcept {
  // First completes what other ranks still wait for: a receiver takes what was sent to it even if it refuses it.
  auto const settled = [&] {
    return std::all_of(passages.begin(), passages.end(),
                       [](Passage& one) { return one.done() || one.memory()->is_done() || one.withdraw(); });
  };
  int peer = rank();
  for (auto const& one : passages) {
    if (!one.done()) peer = one.peer();
  }
  try {
    if (!channel_.has_failed()) return channel_.await(purpose, settled, peer);
  } catch (std::exception const&) {  // the caller rethrows the first error, which is the one to report
  }
  for (auto const& one : passages) {
    if (!one.done()) one.memory()->abandon(channel_.worker());
  }
}

/// A message that its owner moves on. If it is abandoned half-way, the memory that UCX uses for it is kept.
class UcxBackend::KeptPassage final : public Transit {
 public:
  KeptPassage(UcxBackend& backend, Call const& call, Message const& message)
      : backend_(backend), call_(call), passage_(backend, call_, message, true) {}
  ~KeptPassage() override {
    if (!passage_.done() && !passage_.withdraw()) backend_.leave_behind(passage_.memory());
  }

  bool advance() override {
    backend_.channel_.worker().progress();
    return passage_.advance();
  }
  [[nodiscard]] bool withdraw() override { return passage_.withdraw(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return passage_.bytes(); }

 private:
  UcxBackend& backend_;
  Call const call_;
  Passage passage_;
};

std::unique_ptr<Transit> UcxBackend::begin(Call const& call, Message const& message) {
  return std::make_unique<KeptPassage>(*this, call, message);
}

void UcxBackend::await(Call const& call, std::function<bool()> const& ready) {
  channel_.throw_if_failed();
  channel_.await(purpose_of_message(call), ready, Channel::kNobody, is_outer_ ? kOuterNap : Channel::kLongestNap);
}

void UcxBackend::throw_if_failed() {
  channel_.listen();
  channel_.throw_if_failed();
}

PeerState UcxBackend::peer_state(int rank) {
  channel_.listen();
  if (channel_.has_left(rank)) return PeerState::left;
  return channel_.has_died(rank) ? PeerState::died : PeerState::present;
}

}  // namespace weft::ucx
