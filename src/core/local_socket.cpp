#include "core/local_socket.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "weft/error.hpp"

namespace weft {
namespace {

using Clock = LocalSocket::Clock;

[[noreturn]] void throw_system(char const* call) {
  throw Error(ErrorCode::system, fmt::format("local socket: {} failed: {}", call, std::strerror(errno)));
}

/// Rounds up, so that a poll() never ends just short of its deadline and spins.
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

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit Address(std::string const& name) {
    address.sun_family = AF_UNIX;
    std::size_t const used = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), used);  // a leading zero byte makes it abstract
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + used);
  }
  [[nodiscard]] sockaddr const* get() const noexcept { return reinterpret_cast<sockaddr const*>(&address); }
};

LocalSocket open_socket(int& descriptor) {
  descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) throw_system("socket");
  return LocalSocket(descriptor);
}

constexpr std::chrono::milliseconds kRetry{5};

}  // namespace

LocalSocket::LocalSocket(LocalSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

LocalSocket& LocalSocket::operator=(LocalSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void LocalSocket::close() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

LocalSocket LocalSocket::listen(std::string const& name, Clock::time_point deadline) {
  int descriptor = -1;
  LocalSocket listener = open_socket(descriptor);
  Address const address(name);
  while (bind(descriptor, address.get(), address.length) != 0) {
    if (errno != EADDRINUSE) throw_system("bind");
    if (Clock::now() >= deadline) {
      throw Error(ErrorCode::timeout,
                  fmt::format("the local socket name @{} stayed in use: is another job running with the "
                              "same MASTER_PORT?",
                              name));
    }
    std::this_thread::sleep_for(kRetry);
  }
  if (::listen(descriptor, SOMAXCONN) != 0) throw_system("listen");
  return listener;
}

std::optional<LocalSocket> LocalSocket::claim(std::string const& name) {
  int descriptor = -1;
  LocalSocket holder = open_socket(descriptor);
  Address const address(name);
  if (bind(descriptor, address.get(), address.length) == 0) return holder;
  if (errno != EADDRINUSE) throw_system("bind");
  return std::nullopt;
}

std::optional<LocalSocket> LocalSocket::connect(std::string const& name, Clock::time_point deadline) {
  Address const address(name);
  while (true) {
    int descriptor = -1;
    LocalSocket connection = open_socket(descriptor);
    if (::connect(descriptor, address.get(), address.length) == 0) return connection;
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) throw_system("connect");
    if (Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(kRetry);
  }
}

bool LocalSocket::wait_until(short events, Clock::time_point deadline) const {
  pollfd watched{descriptor_, events, 0};
  return poll_until({&watched, 1}, deadline) > 0;
}

std::optional<LocalSocket> LocalSocket::accept(Clock::time_point deadline) {
  while (wait_until(POLLIN, deadline)) {
    int const connection = accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) return LocalSocket(connection);
    if (errno != EINTR && errno != ECONNABORTED) throw_system("accept");
  }
  return std::nullopt;
}

bool LocalSocket::peer_is_this_user() const noexcept {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(descriptor_, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return false;
  return credentials.uid == geteuid();
}

LocalSocket::Result LocalSocket::send(std::span<std::byte const> bytes, Clock::time_point deadline) {
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

LocalSocket::Result LocalSocket::receive(std::span<std::byte> bytes, Clock::time_point deadline) {
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

std::optional<std::size_t> LocalSocket::wait_any(std::span<LocalSocket const> sockets,
                                                 std::vector<std::size_t> const& candidates,
                                                 Clock::time_point deadline) {
  std::vector<pollfd> watched;
  for (std::size_t const candidate : candidates) watched.push_back({sockets[candidate].descriptor_, POLLIN, 0});
  if (poll_until(watched, deadline) == 0) return std::nullopt;
  auto const ready = std::find_if(watched.begin(), watched.end(), [](pollfd const& one) { return one.revents != 0; });
  return static_cast<std::size_t>(ready - watched.begin());
}

}  // namespace weft
