#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "weft/error.hpp"

namespace weft {

/// One rank's end of the network: p2p algorithms know nothing else of it. UCX (transport/ucx), MPI, for measurements
/// (transport/mpi), and the simulator (transport/sim) implement it. It fits tagged messages, as UCX has them: a message
/// is found by its sender and by how many came from there before.
///
/// - Messages from one rank to another match in the order in which both sides began them, whatever order they arrive
///   in. Both sides state the length; where the two differ, the receiver throws Error{mismatch} naming both ranks.
/// - The thread that began a request must wait for it before its memory is freed. Until then nobody may write what is
///   sent, or read what is received.
/// - A failure throws Error{peer_lost|timeout|aborted} naming the rank where it was first seen, from every pending and
///   later call of every rank. All requests are void then, and their memory is not touched any more.
/// - Not thread-safe. A rank cannot send to itself.
class Transport {
 public:
  /// An operation under way; `none`: it was complete at once.
  enum class Request : std::uint64_t { none = 0 };

  Transport() = default;
  Transport(Transport const&) = delete;
  Transport& operator=(Transport const&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// @throws Error{invalid_argument} where the other rank does not exist, or is this one.
  [[nodiscard]] virtual Request start_send(int to, std::span<std::byte const> bytes) = 0;
  [[nodiscard]] virtual Request start_recv(int from, std::span<std::byte> bytes) = 0;
  /// Returns once the operation is complete: what was sent may be written, what was received may be read. Sets
  /// `request` to none. Requests may be waited for in any order.
  virtual void wait(Request& request) = 0;

  /// For a rank that cannot go on with what it has begun, such as for want of memory: makes all ranks fail, and ends
  /// what is under way. All requests are void then, and their memory is not touched any more. By default it does
  /// nothing, which suits transports where nothing writes to memory in the background.
  virtual void fail(ErrorCode /*code*/, std::string const& /*message*/) noexcept {}

  /// Tells that this rank has just combined `bytes` of results. A simulation lets the time for that pass.
  virtual void reduced(std::size_t /*bytes*/) {}

  /// Null where bytes move. In a simulation where only sizes move: the address that all buffers use; nobody may touch
  /// its memory.
  [[nodiscard]] virtual std::byte* phantom() const noexcept { return nullptr; }

  void send(int to, std::span<std::byte const> bytes) {
    auto request = start_send(to, bytes);
    wait(request);
  }
  void recv(int from, std::span<std::byte> bytes) {
    auto request = start_recv(from, bytes);
    wait(request);
  }
  /// Sends and receives at once, so that ranks may exchange messages of any length. The buffers must not overlap.
  void sendrecv(int to, std::span<std::byte const> sent, int from, std::span<std::byte> received) {
    auto outgoing = start_send(to, sent);
    auto incoming = start_recv(from, received);
    wait(incoming);
    wait(outgoing);
  }
};

}  // namespace weft
