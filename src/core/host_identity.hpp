#pragma once

#include <string>

#include "weft/config.hpp"

namespace weft {

/// Most characters of a host's identity.
inline constexpr std::size_t kMostHostIdCharacters = 64;

/// Of the running kernel; empty where it has none. @throws Error{system} where this process may open no more files.
[[nodiscard]] std::string boot_id();

/// What host this process runs on: equal exactly for processes that can share memory. Config::host_id where it is set,
/// else the running kernel's boot id and the PID namespace: across it, as between containers, no rank finds another's
/// memory. @throws what boot_id() throws.
[[nodiscard]] std::string host_identity(Config const& config);

/// What its users call the host this process runs on: Config::host_id where it is set, else the machine's name.
[[nodiscard]] std::string host_name(Config const& config);
/// The machine's own.
[[nodiscard]] std::string host_name();

}  // namespace weft
