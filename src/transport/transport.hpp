#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

/// One rank's end of what moves bytes between ranks: all that p2p algorithms know of the network. Implemented by
/// UCX (transport/ucx) and the simulator (transport/sim); made to fit tagged messages, as UCX has them: a message is
/// found by its sender and by how many came from there before, and a request is what completes it.
///
/// - Messages from one rank to another match in the order in which both sides began them, whatever order they arrive
///   in. Both sides know the length; where they differ the receiver throws Error{mismatch} naming both ranks.
/// - Every request is waited for, by the thread that began it, before its memory goes. Until then nobody writes what is
///   sent, nor looks at what is received.
/// - A failure throws Error{peer_lost|timeout|aborted} naming the rank where it was first seen, from every pending and
///   later call of every rank; requests are void then, and their memory is not touched any more.
/// - Not thread-safe. Nobody sends to itself.
class Transport {
 public:
  /// An operation under way; `none` where it was complete at once.
  enum class Request : std::uint64_t { none = 0 };

  Transport() = default;
  Transport(Transport const&) = delete;
  Transport& operator=(Transport const&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// @throws Error{invalid_argument} for a rank that is none of the others.
  [[nodiscard]] virtual Request start_send(int to, std::span<std::byte const> bytes) = 0;
  [[nodiscard]] virtual Request start_recv(int from, std::span<std::byte> bytes) = 0;
  /// Returns once the operation is complete: what was sent may be written, what was received may be read. Makes
  /// `request` none. Several are waited for in any order.
  virtual void wait(Request& request) = 0;

  /// Tells that this rank has just combined `bytes` of results: where time is simulated, this is what it takes.
  virtual void reduced(std::size_t /*bytes*/) {}

  /// Where only sizes move: where all buffers begin, memory that nobody may touch. Null where bytes move.
  [[nodiscard]] virtual std::byte* phantom() const noexcept { return nullptr; }

  void send(int to, std::span<std::byte const> bytes) {
    auto request = start_send(to, bytes);
    wait(request);
  }
  void recv(int from, std::span<std::byte> bytes) {
    auto request = start_recv(from, bytes);
    wait(request);
  }
  /// Both at once, so that ranks may exchange messages of any length. The memory does not overlap.
  void sendrecv(int to, std::span<std::byte const> sent, int from, std::span<std::byte> received) {
    auto outgoing = start_send(to, sent);
    auto incoming = start_recv(from, received);
    wait(incoming);
    wait(outgoing);
  }
};

}  // namespace weft
