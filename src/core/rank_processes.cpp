#include "core/rank_processes.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <optional>
#include <span>

#include "core/describe_errno.hpp"
#include "core/failure_lines.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

/// Ignores the signal until the rank has a handler of its own: the default action would end it.
void ignore_unless_handled(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  if (action.sa_handler == SIG_DFL) ::signal(signal, SIG_IGN);
}

void restore_if_ignored(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  if (action.sa_handler == SIG_IGN) ::signal(signal, SIG_DFL);
}

/// How a process ended that left no report.
std::string end_of(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exited with code {} before its body returned", WEXITSTATUS(status));
  int const signal = WTERMSIG(status);
  auto const end = fmt::format("killed by signal {} ({})", signal, strsignal(signal));
  return signal == SIGKILL ? end + ", by somebody or for want of memory: the kernel's log (dmesg) would say so" : end;
}

}  // namespace

/// Shared memory in which ranks leave reports for the other ranks and the parent; it outlives their processes.
class RankProcesses::Board {
 public:
  struct Place {
    RankReport report;                ///< the child writes it, the parent reads it after it has reaped that child
    std::atomic<std::uint64_t> said;  ///< key of a failure that somebody has reported; places fill from the first
  };

  explicit Board(std::size_t ranks) : bytes_(ranks * sizeof(Place)) {
    void* const mapping = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
      throw Error(ErrorCode::out_of_memory,
                  fmt::format("cannot map {} shared bytes: {}", bytes_, describe_errno(errno)));
    }
    places_ = {static_cast<Place*>(mapping), ranks};  // zeros are what a Place starts with
  }
  Board(Board const&) = delete;
  Board& operator=(Board const&) = delete;
  ~Board() { munmap(places_.data(), bytes_); }

  [[nodiscard]] std::span<Place> places() const noexcept { return places_; }

 private:
  std::size_t bytes_;
  std::span<Place> places_;
};

RankProcesses::RankProcesses(int ranks)
    : pids_(static_cast<std::size_t>(ranks), 0), board_(std::make_unique<Board>(pids_.size())) {
  sigemptyset(&handled_);
  for (int const signal : {SIGINT, SIGTERM, SIGUSR2, SIGCHLD}) sigaddset(&handled_, signal);
  pthread_sigmask(SIG_BLOCK, &handled_, &old_mask_);
  struct sigaction defaults {};
  defaults.sa_handler = SIG_DFL;  // an inherited SIG_IGN would make the kernel reap for us and lose the exit codes
  sigaction(SIGCHLD, &defaults, &old_child_action_);
}

RankProcesses::~RankProcesses() {
  signal_all(SIGKILL);
  for (pid_t const pid : pids_) {
    while (pid != 0 && waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  sigaction(SIGCHLD, &old_child_action_, nullptr);
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

void RankProcesses::start(std::function<RankResult(int)> const& body, std::function<void(int, pid_t)> const& started) {
  std::cout.flush();
  std::fflush(nullptr);  // otherwise every child would write what is buffered now once more
  pid_t const parent = getpid();
  for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
    pid_t const pid = fork();
    if (pid < 0) {
      auto const error = errno;
      throw Error(ErrorCode::system, fmt::format("cannot fork rank {}: {}{}", rank, describe_errno(error),
                                                 error == EAGAIN ? "; allow more processes (ulimit -u)" : ""));
    }
    if (pid == 0) run_child(static_cast<int>(rank), body, parent);
    pids_[rank] = pid;
    started(static_cast<int>(rank), pid);
  }
  sigset_t pending{};
  sigpending(&pending);
  interrupted_early_ = sigismember(&pending, SIGINT) == 1;
}

void RankProcesses::run_child(int rank, std::function<RankResult(int)> const& body, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(128 + SIGKILL);  // the parent died before the signal was asked for
  sigaction(SIGCHLD, &old_child_action_, nullptr);
  ignore_unless_handled(SIGUSR2);
  restore_if_ignored(SIGINT);  // a shell's background jobs ignore it, but the parent passes it on to be obeyed
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  RankResult const result = body(rank);
  std::cout.flush();
  std::fflush(nullptr);
  board_->places()[static_cast<std::size_t>(rank)].report = result.report;
  _exit(result.code);
}

bool RankProcesses::first_to_say(std::uint64_t key) const noexcept {
  for (auto& place : board_->places()) {
    std::uint64_t said = 0;
    if (place.said.compare_exchange_strong(said, key)) return true;
    if (said == key) return false;
  }
  return true;
}

bool RankProcesses::running() const noexcept {
  return std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid != 0; });
}

void RankProcesses::signal_all(int signal, bool from_terminal) const noexcept {
  for (pid_t const pid : pids_) {
    // A terminal's Ctrl-C goes to all of a process group; a rank must not get it twice, as a second one may mean more
    // to it.
    auto const has_it = from_terminal && getpgid(pid) == getpgrp();
    if (pid != 0 && !has_it) kill(pid, signal);
  }
}

void RankProcesses::record(std::size_t rank, int status) {
  RankReport const report = board_->places()[rank].report;
  int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (code == 0 && report == RankReport::success) return;
  if (report == RankReport::none && !killing_ && !stopping_) {
    write_failure(fmt::format("weft: rank {}: {}", rank, end_of(status)));
  }
  if (code == 0) code = 1;  // its body never returned, whatever it told the system
  bool const cause = report != RankReport::consequence && !killing_;
  if (outcome_.code == 0 || (cause && !outcome_.cause)) outcome_ = {code, cause};
}

void RankProcesses::reap() {
  for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
    if (pids_[rank] == 0) continue;
    int status = 0;
    if (waitpid(pids_[rank], &status, WNOHANG | WUNTRACED) != pids_[rank]) continue;
    if (WIFSTOPPED(status)) {
      // Other stop signals come from a terminal and stop the whole job; its user knows.
      if (WSTOPSIG(status) == SIGSTOP) {
        write_failure(fmt::format("weft: rank {} was stopped (SIGSTOP), and the job waits for it: kill -CONT {}", rank,
                                  pids_[rank]));
      }
      continue;
    }
    pids_[rank] = 0;
    record(rank, status);
  }
}

int RankProcesses::wait(std::chrono::milliseconds grace) {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> kill_at;
  for (reap(); running(); reap()) {
    if (outcome_.code != 0 && !kill_at) kill_at = Clock::now() + grace;
    if (kill_at && Clock::now() >= *kill_at && !killing_) {
      write_failure(fmt::format("weft: ranks still running {} ms after the failure are killed", grace.count()));
      killing_ = true;
      signal_all(SIGKILL);
    }
    timespec const period{0, 100'000'000};  // SIGCHLDs merge and may be missed, so look again now and then
    siginfo_t info{};
    int const signal = sigtimedwait(&handled_, &info, &period);
    if (signal == SIGUSR2) signal_all(signal);  // every rank writes down its last calls
    if (signal != SIGINT && signal != SIGTERM) continue;
    stopping_ = true;
    signal_all(signal, info.si_code == SI_KERNEL && !interrupted_early_);
    interrupted_early_ = false;
    if (outcome_.code == 0) outcome_ = {128 + signal, true};
  }
  return outcome_.code;
}

}  // namespace weft
