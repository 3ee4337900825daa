#include "core/process_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace weft {
namespace {

int open_pidfd(pid_t pid) noexcept {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
#else
  errno = ENOSYS;
  return -1;
#endif
}

/// The fallback without pidfd_open(): reads the state letter in /proc/PID/stat, which stands behind the last ')'.
bool alive_by_proc(pid_t pid) noexcept {
  char path[48];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  int const file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno != ENOENT && errno != ESRCH;  // out of descriptors is no sign of death
  char text[512];
  ssize_t const got = read(file, text, sizeof text - 1);
  close(file);
  if (got <= 0) return false;
  text[got] = '\0';
  char const* const end_of_name = std::strrchr(text, ')');
  if (end_of_name == nullptr || end_of_name[1] == '\0') return false;
  char const state = end_of_name[2];
  return state != 'Z' && state != 'X';
}

}  // namespace

ProcessWatch::ProcessWatch(pid_t pid) noexcept : pid_(pid), pidfd_(open_pidfd(pid)) {
  gone_ = pidfd_ < 0 && errno == ESRCH;
}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), pidfd_(std::exchange(other.pidfd_, -1)), gone_(other.gone_) {}

ProcessWatch& ProcessWatch::operator=(ProcessWatch&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(gone_, other.gone_);
  return *this;
}

ProcessWatch::~ProcessWatch() {
  if (pidfd_ >= 0) close(pidfd_);
}

bool ProcessWatch::alive() const noexcept {
  if (gone_) return false;
  if (pid_ == 0) return true;
  if (pidfd_ < 0) return alive_by_proc(pid_);
  pollfd watched{pidfd_, POLLIN, 0};  // readable once the process has ended
  return poll(&watched, 1, 0) <= 0;
}

}  // namespace weft
