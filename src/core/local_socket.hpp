#pragma once

#include <optional>
#include <string>

#include "core/stream_socket.hpp"

/// Sockets in the abstract Unix namespace: no file, gone with their last holder.
namespace weft::local_socket {

/// Takes `name`, waiting for an earlier holder to let go of it. @throws Error{system|timeout}
[[nodiscard]] StreamSocket listen(std::string const& name, StreamSocket::Clock::time_point deadline);
/// Takes `name` without listening: nobody can connect to it. Empty while another process holds it.
/// @throws Error{system}
[[nodiscard]] std::optional<StreamSocket> claim(std::string const& name);
/// Retries until somebody listens. Empty at the deadline. @throws Error{system}
[[nodiscard]] std::optional<StreamSocket> connect(std::string const& name, StreamSocket::Clock::time_point deadline);

}  // namespace weft::local_socket
