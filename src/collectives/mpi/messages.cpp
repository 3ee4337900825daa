// Point-to-point messages over MPI. A message is an envelope, which carries the first 2 KiB and is sent at once,
// followed by blocks with the rest, two in flight. The blocks alternate between two buffers, which MPI may keep if the
// call fails.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/mpi/mpi_backend.hpp"
#include "collectives/partition.hpp"
#include "kernels/cpu/reduce.hpp"

namespace weft::mpi {

namespace {

constexpr std::size_t kInEnvelope = Envelope::kCapacity;
constexpr std::size_t kMessageBlock = std::size_t{512} << 10;

/// Messages between two ranks have different tags, so that threads may start them in any order. MPI guarantees tags up
/// to 32767.
int tag_of(Message const& message) {
  return kNoticeTag + 1 + static_cast<int>(message.number % 32000);
}

}  // namespace

/// A message on its way, with all memory that MPI uses for it.
class MpiBackend::Passage {
 public:
  Passage(MpiBackend& backend, Call const& call, Message const& message)
      : channel_(backend.channel_),
        returned_(backend.returned_envelopes_),
        call_(call),
        message_(message),
        blocks_(ceil_div(later_bytes(), kMessageBlock)) {
    for (std::size_t i = 0; i < std::min<std::size_t>(blocks_, 2); ++i) {
      memory_[i] = Buffer::host(std::min(kMessageBlock, later_bytes()), DataType::u8);
    }
  }

  [[nodiscard]] int peer() const noexcept { return message_.peer; }
  [[nodiscard]] std::size_t bytes() const noexcept { return message_.bytes; }
  [[nodiscard]] bool done() const noexcept { return done_; }
  [[nodiscard]] bool sends() const noexcept { return message_.direction == Message::Direction::send; }

  /// Moves what can be moved now. True once the message is complete.
  bool advance() {
    if (done_) return true;
    if (!started_) start_envelope();
    started_ = true;
    if (!opened_) {
      if (!channel_.test(call_, requests_[2])) return false;
      opened_ = true;
      if (!sends()) open();
    }
    while (finished_ < blocks_) {
      while (begun_ < blocks_ && begun_ < finished_ + 2) begin_block();
      if (!channel_.test(call_, requests_[finished_ % 2])) return false;
      if (!sends()) kernels::copy(at(message_.data, offset(finished_)), block(finished_), length(finished_));
      ++finished_;
    }
    return done_ = true;
  }

  /// Takes back a receive of which advance() has seen nothing yet. False if it has, or if MPI still uses its memory.
  [[nodiscard]] bool withdraw() {
    if (!started_) return true;
    if (sends() || opened_) return false;
    switch (channel_.cancel(requests_[2])) {
      case Channel::Cancelled::yes: break;
      case Channel::Cancelled::has_come: returned_.put(peer(), message_.number, envelope_); break;
      case Channel::Cancelled::no: return false;
    }
    started_ = false;
    return true;
  }

 private:
  [[nodiscard]] std::size_t later_bytes() const noexcept {
    return message_.bytes > kInEnvelope ? message_.bytes - kInEnvelope : 0;
  }
  [[nodiscard]] std::size_t now_bytes() const noexcept { return message_.bytes - later_bytes(); }
  [[nodiscard]] std::size_t offset(std::size_t index) const noexcept { return kInEnvelope + index * kMessageBlock; }
  [[nodiscard]] std::size_t length(std::size_t index) const noexcept {
    return std::min(kMessageBlock, message_.bytes - offset(index));
  }
  [[nodiscard]] std::byte* block(std::size_t index) const noexcept {
    return static_cast<std::byte*>(memory_[index % 2].data());
  }

  void start(void* data, std::size_t bytes, MPI_Request& request) {
    auto const count = static_cast<int>(bytes);
    auto const tag = tag_of(message_);
    channel_.start(
        call_, sends() ? "MPI_Isend" : "MPI_Irecv",
        [&](MPI_Request& started) {
          return sends() ? MPI_Isend(data, count, MPI_BYTE, peer(), tag, channel_.handle(), &started)
                         : MPI_Irecv(data, count, MPI_BYTE, peer(), tag, channel_.handle(), &started);
        },
        request);
  }

  void start_envelope() {
    if (!sends() && returned_.take(peer(), message_.number, envelope_)) return;
    envelope_.bytes = message_.bytes;
    envelope_.dtype = static_cast<std::uint64_t>(message_.dtype);
    if (sends() && message_.bytes > 0) std::memcpy(envelope_.payload.data(), message_.data, now_bytes());
    auto const used = sizeof envelope_ - kInEnvelope + now_bytes();
    start(&envelope_, sends() ? used : sizeof envelope_, requests_[2]);
  }

  void open() {
    auto const dtype = static_cast<DataType>(envelope_.dtype);
    auto const fits = message_.up_to ? envelope_.bytes <= now_bytes() : envelope_.bytes == message_.bytes;
    if (!fits || dtype != message_.dtype) {
      channel_.contradict(peer());
      auto const size = [](std::size_t bytes, DataType type) {
        return fmt::format("{} × {}", bytes / size_of(type), to_string(type));
      };
      throw Error(ErrorCode::mismatch,
                  fmt::format("message {} from rank {} to rank {} is {}, but the receiver expects {} ({}); no more "
                              "messages can pass between them",
                              message_.number + 1, peer(), channel_.rank(), size(envelope_.bytes, dtype),
                              size(message_.bytes, message_.dtype), describe(call_)));
    }
    if (message_.up_to) message_.bytes = envelope_.bytes;
    if (message_.bytes > 0) std::memcpy(message_.data, envelope_.payload.data(), now_bytes());
  }

  void begin_block() {
    auto const index = begun_++;
    if (sends()) kernels::copy(block(index), at(message_.data, offset(index)), length(index));
    start(block(index), length(index), requests_[index % 2]);
  }

  Channel& channel_;
  ReturnedEnvelopes& returned_;
  Call const& call_;
  Message message_;
  std::size_t blocks_;
  Envelope envelope_;
  std::array<Buffer, 2> memory_;
  std::array<MPI_Request, 3> requests_{MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};  // blocks, envelope
  bool started_ = false;
  bool opened_ = false;
  bool done_ = false;
  std::size_t begun_ = 0;
  std::size_t finished_ = 0;
};

void MpiBackend::transfer(Call const& call, std::span<Message const> messages) {
  auto transits = std::make_shared<std::vector<std::unique_ptr<Passage>>>();
  for (auto const& message : messages) transits->push_back(std::make_unique<Passage>(*this, call, message));
  int waited_for = messages.empty() ? rank() : messages.front().peer;
  auto const throw_if_contradicted = [&] {
    for (auto const& one : *transits) {
      if (!channel_.contradicted(one->peer())) continue;
      throw Error(ErrorCode::mismatch,
                  fmt::format("{}: an earlier message between ranks {} and {} was not what its receiver expected; make "
                              "the sizes and types of both sides equal",
                              describe(call), rank(), one->peer()));
    }
  };
  int polls = 0;
  auto const advance_all = [&] {
    constexpr int kPollsPerLook = 32;
    if (++polls % kPollsPerLook == 0) throw_if_contradicted();
    bool done = true;
    for (auto const& one : *transits) {
      if (one->advance()) continue;
      if (done) waited_for = one->peer();
      done = false;
    }
    return done;
  };
  try {
    channel_.throw_if_failed();
    throw_if_contradicted();
    channel_.await(call, advance_all, waited_for);
  } catch (...) {
    channel_.leave_behind(std::move(transits));
    throw;
  }
}

/// A message that its owner moves on. If it is abandoned half-way, the memory that MPI uses for it is kept.
class MpiBackend::KeptPassage final : public Transit {
 public:
  KeptPassage(MpiBackend& backend, Call const& call, Message const& message)
      : channel_(backend.channel_), call_(call), passage_(std::make_shared<Passage>(backend, call_, message)) {}
  ~KeptPassage() override {
    if (!passage_->done() && !passage_->withdraw()) channel_.leave_behind(std::move(passage_));
  }

  bool advance() override { return passage_->advance(); }
  [[nodiscard]] bool withdraw() override { return passage_->withdraw(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return passage_->bytes(); }

 private:
  Channel& channel_;
  Call const call_;
  std::shared_ptr<Passage> passage_;
};

std::unique_ptr<Transit> MpiBackend::begin(Call const& call, Message const& message) {
  return std::make_unique<KeptPassage>(*this, call, message);
}

void MpiBackend::await(Call const& call, std::function<bool()> const& ready) {
  channel_.throw_if_failed();
  auto unlimited = call;
  unlimited.timeout = kLongestTimeout;
  int const nobody_else = rank();
  channel_.await(unlimited, ready, nobody_else);
}

void MpiBackend::throw_if_failed() {
  channel_.throw_if_failed();
}

PeerState MpiBackend::peer_state(int rank) {
  // MPI does not tell that a process has died: its launcher ends the other processes.
  return channel_.has_left(rank) ? PeerState::left : PeerState::present;
}

}  // namespace weft::mpi
