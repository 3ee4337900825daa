#pragma once

#include <optional>
#include <string>

#include "core/stream_socket.hpp"

/// Connections between hosts, while ranks find one another.
namespace weft::tcp_socket {

struct Endpoint {
  std::string host;
  int port = 0;

  [[nodiscard]] std::string describe() const { return host + ":" + std::to_string(port); }
};

/// Listens at that one address, and no other of this host's; waits for an earlier holder to let go of it, for a while.
/// @throws Error{invalid_argument} where it is none of this host's, or one that only this host reaches though it goes
/// by another name; Error{timeout|system}
[[nodiscard]] StreamSocket listen(Endpoint const& at, StreamSocket::Clock::time_point deadline);
/// Retries until somebody listens. Empty at the deadline. @throws Error{system}, Error{invalid_argument} at the
/// deadline where this host does not know the name, of which it warns early
[[nodiscard]] std::optional<StreamSocket> connect(Endpoint const& to, StreamSocket::Clock::time_point deadline);

}  // namespace weft::tcp_socket
