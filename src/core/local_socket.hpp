#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// A stream socket in the abstract Unix namespace: no file, gone with its last holder. Move-only. One thread at a time.
class LocalSocket {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Result { ok, closed, timed_out };

  LocalSocket() = default;
  explicit LocalSocket(int descriptor) noexcept : descriptor_(descriptor) {}
  LocalSocket(LocalSocket&& other) noexcept;
  LocalSocket& operator=(LocalSocket&& other) noexcept;
  ~LocalSocket() { close(); }

  /// Takes `name`, waiting for an earlier holder to let go of it. @throws Error{system|timeout}
  [[nodiscard]] static LocalSocket listen(std::string const& name, Clock::time_point deadline);
  /// Takes `name` for itself alone, not to be connected to. Empty while another holds it. @throws Error{system}
  [[nodiscard]] static std::optional<LocalSocket> claim(std::string const& name);
  /// Retries until somebody listens. Empty at the deadline. @throws Error{system}
  [[nodiscard]] static std::optional<LocalSocket> connect(std::string const& name, Clock::time_point deadline);
  /// Empty at the deadline. @throws Error{system}
  [[nodiscard]] std::optional<LocalSocket> accept(Clock::time_point deadline);

  /// Whether the other end was opened by a process of this process's user (SO_PEERCRED).
  [[nodiscard]] bool peer_is_this_user() const noexcept;

  /// All of `bytes` or a reason. A reset connection counts as closed. @throws Error{system} for anything else.
  [[nodiscard]] Result send(std::span<std::byte const> bytes, Clock::time_point deadline);
  [[nodiscard]] Result receive(std::span<std::byte> bytes, Clock::time_point deadline);

  /// Position in `candidates` of a socket with something to read, or that was closed; empty at the deadline.
  [[nodiscard]] static std::optional<std::size_t> wait_any(std::span<LocalSocket const> sockets,
                                                           std::vector<std::size_t> const& candidates,
                                                           Clock::time_point deadline);

  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
  void close() noexcept;

 private:
  [[nodiscard]] bool wait_until(short events, Clock::time_point deadline) const;

  int descriptor_ = -1;
};

}  // namespace weft
