#include "progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>

#include <fmt/format.h>

namespace train_gpt {
namespace {

std::string bar(int done, int total, int cells) {
  int const full = static_cast<int>(static_cast<long>(done) * cells / total);
  std::string text;
  for (int i = 0; i < cells; ++i) {
    text += i < full ? "█" : "░";
  }
  return text;
}

/// Columns of the terminal; mpirun's own says nothing.
int columns() {
  constexpr int kUsual = 80;
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

/// Whether a terminal shows what is printed. mpirun gives rank 0 a terminal of its own and passes the text on, so the
/// parent's standard output counts too; for forked ranks both are the same.
bool on_terminal() {
  std::error_code error;
  std::string const parent = std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", getppid()), error).string();
  return isatty(STDOUT_FILENO) == 1 && (parent.starts_with("/dev/pts/") || parent.starts_with("/dev/tty"));
}

}  // namespace

Progress::Progress(int first, int steps)
    : first_(first), steps_(steps), terminal_(on_terminal()), pace_(first, steps, std::chrono::steady_clock::now()) {}

void Progress::show(StepRecord const& record, double tokens_per_step) {
  int const done = record.step + 1;
  bool const due = pace_.step_done(done, std::chrono::steady_clock::now());
  if (!terminal_ && !due) {
    return;
  }
  weft::OverlapReport const& overlap = record.overlap;
  std::string const left =
      (done < steps_ ? describe(pace_.left()) + " left" : "done") + (record.skipped ? ", overflowed: skipped" : "");
  double const rate = 1000.0 * tokens_per_step / overlap.step_ms;
  if (terminal_) {
    redraw(done, fmt::format("{}/{}, {}  loss {:.4f}  {:.0f} tokens/s  comm. {:.2f} ms, {:.1f} % hidden", done, steps_,
                             left, record.loss, rate, overlap.communication_ms, overlap.hidden_percent()));
  } else {
    fmt::print("step {:>4}/{}  loss {:.4f}  {:>6.0f} tokens/s  communication {:>7.2f} ms  hidden {:>5.1f} %  {}\n",
               done, steps_, record.loss, rate, overlap.communication_ms, overlap.hidden_percent(), left);
  }
  std::fflush(stdout);
}

void Progress::redraw(int done, std::string figures) const {
  constexpr int kFewestCells = 4;
  constexpr int kMostCells = 24;
  int const room = columns() - 1;  // a full line would wrap, and then \r no longer reaches its start
  int const cells = std::clamp(room - 1 - static_cast<int>(figures.size()), kFewestCells, kMostCells);
  figures.resize(std::min(figures.size(), static_cast<std::size_t>(std::max(0, room - 1 - cells))));
  fmt::print("\r\x1b[K{} {}", bar(done, steps_, cells), figures);
}

void Progress::done() const {
  int const taken = steps_ - first_;
  fmt::print("{}{} step{} in {}\n", terminal_ ? "\n" : "", taken, taken == 1 ? "" : "s", describe(pace_.elapsed()));
}

}  // namespace train_gpt
