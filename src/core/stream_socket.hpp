#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace weft {

/// One end of a connection, or a socket that listens for connections. Move-only. Only one thread at a time may use it.
class StreamSocket {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Result { ok, closed, timed_out };

  StreamSocket() = default;
  explicit StreamSocket(int descriptor) noexcept : descriptor_(descriptor) {}
  StreamSocket(StreamSocket&& other) noexcept;
  StreamSocket& operator=(StreamSocket&& other) noexcept;
  ~StreamSocket() { close(); }

  /// Empty at the deadline. @throws Error{system}
  [[nodiscard]] std::optional<StreamSocket> accept(Clock::time_point deadline);

  /// Whether the other end was opened by a process of the same user (SO_PEERCRED). For connections within one host.
  [[nodiscard]] bool peer_is_this_user() const noexcept;

  /// Moves all of `bytes`, or returns the reason. A reset connection counts as closed.
  /// @throws Error{system} for anything else.
  [[nodiscard]] Result send(std::span<std::byte const> bytes, Clock::time_point deadline);
  [[nodiscard]] Result receive(std::span<std::byte> bytes, Clock::time_point deadline);

  /// Whether the other end was closed; what it sent before may still be unread.
  [[nodiscard]] bool peer_has_closed() const noexcept;
  /// Reads the first bytes that have arrived, but leaves them there; false where there are fewer than asked for.
  [[nodiscard]] bool peek(std::span<std::byte> bytes) const noexcept;

  /// The position in `candidates` of a socket that has something to read or was closed; empty at the deadline.
  [[nodiscard]] static std::optional<std::size_t> wait_any(std::span<StreamSocket const> sockets,
                                                           std::vector<std::size_t> const& candidates,
                                                           Clock::time_point deadline);
  /// False at the deadline. @throws Error{system}
  [[nodiscard]] bool wait_until(short events, Clock::time_point deadline) const;

  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  void close() noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace weft
