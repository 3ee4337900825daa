#include "progress.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include <fmt/format.h>

namespace train_gpt {
namespace {

std::string bar(int done, int total) {
  constexpr int kCells = 24;
  int const full = static_cast<int>(static_cast<long>(done) * kCells / total);
  std::string cells;
  for (int i = 0; i < kCells; ++i) {
    cells += i < full ? "█" : "░";
  }
  return cells;
}

/// Whether a terminal shows what is printed. mpirun gives rank 0 a terminal of its own and passes the text on, so the
/// parent's standard output counts too; for forked ranks both are the same.
bool on_terminal() {
  std::error_code error;
  std::string const parent = std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", getppid()), error).string();
  return isatty(STDOUT_FILENO) == 1 && (parent.starts_with("/dev/pts/") || parent.starts_with("/dev/tty"));
}

}  // namespace

Progress::Progress(int first, int steps) : first_(first), steps_(steps), terminal_(on_terminal()) {}

void Progress::show(StepRecord const& record, double tokens_per_step) {
  int const done = record.step + 1;
  std::string const figures =
      fmt::format("step {:>4}/{}  loss {:.4f}  {:>6.0f} tokens/s  communication {:>7.2f} ms  hidden {:>5.1f} %", done,
                  steps_, record.loss, 1000.0 * tokens_per_step / record.overlap.step_ms,
                  record.overlap.communication_ms, record.overlap.hidden_percent());
  if (terminal_) {
    fmt::print("\r\x1b[K{} {}", bar(done, steps_), figures);
    std::fflush(stdout);
    return;
  }
  auto const tenth = [&](int step) { return static_cast<long>(step - first_) * 10 / (steps_ - first_); };
  if (record.step == first_ || tenth(done) != tenth(record.step)) {
    fmt::print("{}\n", figures);
    std::fflush(stdout);
  }
}

void Progress::done() const {
  if (terminal_) {
    fmt::print("\n");
  }
}

}  // namespace train_gpt
