#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace weft {

/// How a rank ended, in its own words before it exits. It goes through shared memory, as an exit code cannot say it.
enum class RankReport : unsigned char {
  none,  ///< no report: the rank was killed, or its body called exit()
  success,
  cause,        ///< failed, and said so on stderr unless another rank had
  consequence,  ///< failed because of a peer, and said so on stderr unless another rank had
};

/// What a forked rank's body hands back.
struct RankResult {
  int code = 0;
  RankReport report = RankReport::success;
};

/// Forks ranks, forwards signals to them and reaps them. No process is left behind, not even after an exception.
class RankProcesses {
 public:
  /// Blocks SIGINT, SIGTERM, SIGUSR2 and SIGCHLD in this thread, which must be the only one, until destroyed.
  explicit RankProcesses(int ranks);
  RankProcesses(RankProcesses const&) = delete;
  RankProcesses& operator=(RankProcesses const&) = delete;
  /// Kills and reaps what still runs.
  ~RankProcesses();

  /// Forks every rank; `body(rank)` runs in the child, which then exits. `started(rank, pid)` runs in the parent.
  /// @throws Error{system} when a fork fails.
  void start(std::function<RankResult(int rank)> const& body, std::function<void(int rank, pid_t pid)> const& started);

  /// For children that fail: whether this one is the first to report a failure of this key (failure_key()).
  [[nodiscard]] bool first_to_say(std::uint64_t key) const noexcept;

  /// Waits for all. After the first failure or forwarded signal the rest have `grace` before SIGKILL. Returns the exit
  /// code of the rank that failed first (causes before consequences), 128 + signal for one that a signal ended, or 0.
  [[nodiscard]] int wait(std::chrono::milliseconds grace);

 private:
  class Board;
  struct Outcome {
    int code = 0;
    bool cause = false;
  };

  void run_child(int rank, std::function<RankResult(int)> const& body, pid_t parent);
  void reap();
  void record(std::size_t rank, int status);
  void signal_all(int signal, bool from_terminal = false) const noexcept;
  [[nodiscard]] bool running() const noexcept;

  std::vector<pid_t> pids_;  ///< 0 once reaped
  std::unique_ptr<Board> board_;
  Outcome outcome_;
  bool stopping_ = false;  ///< a signal was forwarded: how ranks end is not reported any more
  bool killing_ = false;
  bool interrupted_early_ = false;  ///< a signal came before all ranks were there to get it
  sigset_t handled_{};
  sigset_t old_mask_{};
  struct sigaction old_child_action_ {};
};

}  // namespace weft
