#pragma once

#include <sys/types.h>

namespace weft {

/// Watches another process of this host, child or not, without being confused by a reused process id. Move-only.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  /// `pid` must be alive or an unreaped zombie now. Where pidfd_open() is missing, /proc is read instead.
  explicit ProcessWatch(pid_t pid) noexcept;
  ProcessWatch(ProcessWatch&& other) noexcept;
  ProcessWatch& operator=(ProcessWatch&& other) noexcept;
  ~ProcessWatch();

  /// False once the process has ended, reaped or not. True for a default-made watch.
  [[nodiscard]] bool alive() const noexcept;

 private:
  pid_t pid_ = 0;
  int pidfd_ = -1;
  bool gone_ = false;  ///< had already ended when the watch was made
};

}  // namespace weft
