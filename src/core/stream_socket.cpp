#include "core/stream_socket.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/describe_errno.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using Clock = StreamSocket::Clock;

[[noreturn]] void throw_system(char const* call) {
  throw Error(ErrorCode::system, fmt::format("socket: {} failed: {}", call, describe_errno(errno)));
}

/// Rounds up, as polls that end just short of the deadline would make the wait spin.
int milliseconds_until(Clock::time_point deadline) {
  auto const left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 60'000));
}

/// poll() until something is ready or the deadline has passed.
int poll_until(std::span<pollfd> watched, Clock::time_point deadline) {
  while (true) {
    int const ready = poll(watched.data(), watched.size(), milliseconds_until(deadline));
    if (ready > 0) return ready;
    if (ready < 0 && errno != EINTR) throw_system("poll");
    if (Clock::now() >= deadline) return 0;
  }
}

}  // namespace

StreamSocket::StreamSocket(StreamSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

StreamSocket& StreamSocket::operator=(StreamSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void StreamSocket::close() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

bool StreamSocket::wait_until(short events, Clock::time_point deadline) const {
  pollfd watched{descriptor_, events, 0};
  return poll_until({&watched, 1}, deadline) > 0;
}

std::optional<StreamSocket> StreamSocket::accept(Clock::time_point deadline) {
  while (wait_until(POLLIN, deadline)) {
    int const connection = accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) return StreamSocket(connection);
    if (errno != EINTR && errno != ECONNABORTED) throw_system("accept");
  }
  return std::nullopt;
}

bool StreamSocket::peer_is_this_user() const noexcept {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(descriptor_, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return false;
  return credentials.uid == geteuid();
}

StreamSocket::Result StreamSocket::send(std::span<std::byte const> bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    if (!wait_until(POLLOUT, deadline)) return Result::timed_out;
    ssize_t const sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return Result::closed;
    } else if (errno != EAGAIN && errno != EINTR) {
      throw_system("send");
    }
  }
  return Result::ok;
}

StreamSocket::Result StreamSocket::receive(std::span<std::byte> bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    if (!wait_until(POLLIN, deadline)) return Result::timed_out;
    ssize_t const got = recv(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0 || errno == ECONNRESET) {
      return Result::closed;
    } else if (errno != EAGAIN && errno != EINTR) {
      throw_system("recv");
    }
  }
  return Result::ok;
}

bool StreamSocket::peer_has_closed() const noexcept {
  pollfd watched{descriptor_, POLLRDHUP, 0};
  return poll(&watched, 1, 0) == 1;
}

bool StreamSocket::peek(std::span<std::byte> bytes) const noexcept {
  return recv(descriptor_, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

std::optional<std::size_t> StreamSocket::wait_any(std::span<StreamSocket const> sockets,
                                                  std::vector<std::size_t> const& candidates,
                                                  Clock::time_point deadline) {
  std::vector<pollfd> watched;
  for (std::size_t const candidate : candidates) watched.push_back({sockets[candidate].descriptor_, POLLIN, 0});
  if (poll_until(watched, deadline) == 0) return std::nullopt;
  auto const ready = std::find_if(watched.begin(), watched.end(), [](pollfd const& one) { return one.revents != 0; });
  return static_cast<std::size_t>(ready - watched.begin());
}

}  // namespace weft
