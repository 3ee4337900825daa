#pragma once

#include <string>

#include "weft/config.hpp"

namespace weft {

/// Most characters of a host's identity.
inline constexpr std::size_t kMostHostIdCharacters = 64;

/// The boot id of the running kernel; empty where it has none.
/// @throws Error{system} where this process may open no more files.
[[nodiscard]] std::string boot_id();

/// Identifies the host that this process runs on: equal exactly for processes that can share memory. It is
/// Config::host_id where that is set, else the running kernel's boot id and the PID namespace: across PID namespaces,
/// as between containers, no rank finds another's memory. @throws what boot_id() throws.
[[nodiscard]] std::string host_identity(Config const& config);

/// The name of the host that this process runs on: Config::host_id where it is set, else the machine's name.
[[nodiscard]] std::string host_name(Config const& config);
/// The machine's name.
[[nodiscard]] std::string host_name();

}  // namespace weft
