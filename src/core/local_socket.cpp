#include "core/local_socket.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

#include "core/describe_errno.hpp"
#include "weft/error.hpp"

namespace weft::local_socket {
namespace {

using Clock = StreamSocket::Clock;

constexpr std::chrono::milliseconds kRetry{5};

[[noreturn]] void throw_system(char const* call) {
  throw Error(ErrorCode::system, fmt::format("local socket: {} failed: {}", call, describe_errno(errno)));
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

StreamSocket open_socket(int& descriptor) {
  descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) throw_system("socket");
  return StreamSocket(descriptor);
}

}  // namespace

StreamSocket listen(std::string const& name, Clock::time_point deadline) {
  int descriptor = -1;
  StreamSocket listener = open_socket(descriptor);
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

std::optional<StreamSocket> claim(std::string const& name) {
  int descriptor = -1;
  StreamSocket holder = open_socket(descriptor);
  Address const address(name);
  if (bind(descriptor, address.get(), address.length) == 0) return holder;
  if (errno != EADDRINUSE) throw_system("bind");
  return std::nullopt;
}

std::optional<StreamSocket> connect(std::string const& name, Clock::time_point deadline) {
  Address const address(name);
  while (true) {
    int descriptor = -1;
    StreamSocket connection = open_socket(descriptor);
    if (::connect(descriptor, address.get(), address.length) == 0) return connection;
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) throw_system("connect");
    if (Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace weft::local_socket
