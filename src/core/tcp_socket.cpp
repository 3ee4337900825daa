#include "core/tcp_socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "core/describe_errno.hpp"
#include "core/log.hpp"
#include "weft/error.hpp"

namespace weft::tcp_socket {
namespace {

using Clock = StreamSocket::Clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

constexpr std::chrono::milliseconds kRetry{20};
/// How long to wait for a holder of the address to let go of it: a job that torchrun has ended.
constexpr std::chrono::seconds kPatience{10};
/// How long an unknown name is looked up again before the user is told: a name service may be just starting.
constexpr std::chrono::seconds kNameService{5};
/// How long to wait for one of several addresses to answer.
constexpr std::chrono::seconds kAttempt{5};

[[noreturn]] void throw_system(char const* call, Endpoint const& where) {
  throw Error(ErrorCode::system, fmt::format("{}: {} failed: {}", where.describe(), call, describe_errno(errno)));
}

/// Null where the name is not known (yet).
Addresses resolve(Endpoint const& of) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(of.host.c_str(), std::to_string(of.port).c_str(), &wanted, &found) != 0) found = nullptr;
  return {found, &freeaddrinfo};
}

std::string unknown_here(Endpoint const& to) {
  return fmt::format(
      "MASTER_ADDR={} is no address that this host knows; use one that every host can resolve, such as "
      "the IP address of rank 0's",
      to.host);
}

bool is_loopback(addrinfo const& address) {
  if (address.ai_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address.ai_addr, sizeof v4);
    return (ntohl(v4.sin_addr.s_addr) >> 24U) == 127;
  }
  if (address.ai_family != AF_INET6) return false;
  sockaddr_in6 v6{};
  std::memcpy(&v6, address.ai_addr, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

/// Refuses a loopback address: Debian gives hosts their own name as 127.0.1.1.
void refuse_loopback(Endpoint const& at, addrinfo const& address) {
  if (!is_loopback(address) || at.host == "localhost" || at.host == "::1" || at.host.starts_with("127.")) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("MASTER_ADDR={} is a loopback address on its own host, which the others cannot reach; use an "
                          "address of a network (torchrun: --master-addr, or --local-addr on that host)",
                          at.host));
}

StreamSocket open(addrinfo const& address, Endpoint const& where) {
  int const descriptor = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) throw_system("socket", where);
  int const yes = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return StreamSocket(descriptor);
}

/// Within the range of ports that the kernel gives out, one that tries to connect may find itself.
bool met_itself(StreamSocket const& connection) {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_length = sizeof own;
  socklen_t other_length = sizeof other;
  return getsockname(connection.descriptor(), reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         getpeername(connection.descriptor(), reinterpret_cast<sockaddr*>(&other), &other_length) == 0 &&
         own_length == other_length && std::memcmp(&own, &other, own_length) == 0;
}

bool connects(StreamSocket const& connection, addrinfo const& address, Clock::time_point deadline) {
  int const descriptor = connection.descriptor();
  int const flags = fcntl(descriptor, F_GETFL);
  fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
  if (::connect(descriptor, address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS || !connection.wait_until(POLLOUT, deadline)) return false;
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) return false;
  }
  fcntl(descriptor, F_SETFL, flags);
  return !met_itself(connection);
}

}  // namespace

StreamSocket listen(Endpoint const& at, Clock::time_point deadline) {
  auto const addresses = resolve(at);
  if (!addresses) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("MASTER_ADDR={} is no address that rank 0's host knows", at.host));
  }
  refuse_loopback(at, *addresses);
  auto listener = open(*addresses, at);
  int const yes = 1;
  setsockopt(listener.descriptor(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  auto const give_up = std::min(deadline, Clock::now() + kPatience);
  while (bind(listener.descriptor(), addresses->ai_addr, addresses->ai_addrlen) != 0) {
    if (errno == EADDRNOTAVAIL) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("MASTER_ADDR={} is none of the addresses of this host, where rank 0 is; name one of them, "
                      "which all other hosts can reach",
                      at.host));
    }
    if (errno != EADDRINUSE) throw_system("bind", at);
    if (Clock::now() >= give_up) {
      throw Error(ErrorCode::timeout,
                  fmt::format("{} stayed in use, where ranks are to meet: choose another MASTER_PORT (torchrun: "
                              "--master-port, or the port of --rdzv-endpoint)",
                              at.describe()));
    }
    std::this_thread::sleep_for(kRetry);
  }
  if (::listen(listener.descriptor(), SOMAXCONN) != 0) throw_system("listen", at);
  return listener;
}

std::optional<StreamSocket> connect(Endpoint const& to, Clock::time_point deadline) {
  auto const warn_at = Clock::now() + kNameService;
  bool warned = false;
  while (true) {
    auto const addresses = resolve(to);
    if (!addresses && Clock::now() >= deadline) throw Error(ErrorCode::invalid_argument, unknown_here(to));
    if (!addresses && !warned && Clock::now() >= warn_at) {
      warned = true;
      log(LogLevel::warn, unknown_here(to) + "; it is looked up until the time limit");
    }
    for (auto const* each = addresses.get(); each != nullptr; each = each->ai_next) {
      auto connection = open(*each, to);
      if (connects(connection, *each, std::min(deadline, Clock::now() + kAttempt))) return connection;
    }
    if (Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace weft::tcp_socket
