#pragma once

#include <optional>
#include <string>

#include "core/stream_socket.hpp"

/// Connections between hosts, over which ranks find one another.
namespace weft::tcp_socket {

struct Endpoint {
  std::string host;
  int port = 0;

  [[nodiscard]] std::string describe() const { return host + ":" + std::to_string(port); }
};

/// Listens at this one address of the host and at no other. If another socket still holds the address, it waits for a
/// while.
/// @throws Error{invalid_argument} where the address is not this host's, or only this host can reach it though its name
/// is another one's; Error{timeout|system}
[[nodiscard]] StreamSocket listen(Endpoint const& at, StreamSocket::Clock::time_point deadline);
/// Retries until somebody listens. Empty at the deadline. A name that this host does not know is warned of early.
/// @throws Error{system}; Error{invalid_argument} at the deadline where this host does not know the name
[[nodiscard]] std::optional<StreamSocket> connect(Endpoint const& to, StreamSocket::Clock::time_point deadline);

}  // namespace weft::tcp_socket
