#include "collectives/shm/fd_passing.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace weft::shm {
namespace {

constexpr int kPatienceMs = 10'000;

/// An abstract address (leading NUL): it has no file, so nothing is left behind.
socklen_t make_address(std::uint64_t token, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  auto const name = fmt::format("weft-{:016x}", token);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

bool ready(int socket) {
  pollfd wanted{socket, POLLIN, 0};
  return ::poll(&wanted, 1, kPatienceMs) == 1;
}

int send_one(int socket, int fd, std::uint64_t token) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  iovec payload{&token, sizeof token};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  auto* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof token) ? 0 : errno;
}

int receive_one(int socket, std::uint64_t token, int& error_number) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  std::uint64_t received = 0;
  iovec payload{&received, sizeof received};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  auto const bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  int fd = -1;
  auto* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  if (bytes == static_cast<ssize_t>(sizeof received) && received == token && fd >= 0) return fd;
  error_number = bytes < 0 ? errno : EPROTO;
  if (fd >= 0) ::close(fd);
  return -1;
}

}  // namespace

int send_descriptor(int fd, std::uint64_t token, int receivers, std::function<void()> const& listening) {
  sockaddr_un address;
  auto const length = make_address(token, address);
  int const listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  int error = 0;
  if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener, receivers) != 0) {
    error = errno;
  }
  listening();  // also on failure: the peers wait for it, and then fail to connect
  while (error == 0 && receivers > 0) {
    if (!ready(listener)) {
      error = ETIMEDOUT;
      break;
    }
    int const peer = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0) {
      error = errno;
      break;
    }
    if (same_user(peer)) {
      error = send_one(peer, fd, token);
      --receivers;
    }
    ::close(peer);
  }
  if (listener >= 0) ::close(listener);
  return error;
}

int receive_descriptor(std::uint64_t token, int& error_number) {
  sockaddr_un address;
  auto const length = make_address(token, address);
  int const peer = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  int fd = -1;
  if (peer < 0 || ::connect(peer, reinterpret_cast<sockaddr*>(&address), length) != 0)
    error_number = errno;
  else if (!same_user(peer))
    error_number = EPERM;
  else if (!ready(peer))
    error_number = ETIMEDOUT;
  else
    fd = receive_one(peer, token, error_number);
  if (peer >= 0) ::close(peer);
  return fd;
}

}  // namespace weft::shm
