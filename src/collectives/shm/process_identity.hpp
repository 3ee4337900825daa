#pragma once

#include <cstdint>

namespace weft::shm {

/// Identifies a process among all of a machine, where processes of different containers may have the same pid. Plain
/// bytes, so that ranks can tell it to others.
struct ProcessIdentity {
  std::int64_t pid = 0;
  std::uint64_t pid_namespace = 0;  ///< 0: not known

  friend bool operator==(ProcessIdentity const&, ProcessIdentity const&) = default;
};

[[nodiscard]] ProcessIdentity this_process() noexcept;

/// Whether each may ask the kernel about the other by its pid.
[[nodiscard]] constexpr bool know_each_other(ProcessIdentity const& one, ProcessIdentity const& other) noexcept {
  return one.pid_namespace == other.pid_namespace || one.pid_namespace == 0 || other.pid_namespace == 0;
}

}  // namespace weft::shm
