#include "tool_output/interruption.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>

namespace weft::tool_output {
namespace {

constexpr int kShellsBase = 128;

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free, "signal handlers may not lock");

void remember(int signal) noexcept {
  constexpr std::string_view kSaid = "\nending with what was found; once more ends at once\n";
  received = signal;
  static_cast<void>(!write(STDERR_FILENO, kSaid.data(), kSaid.size()));
}

}  // namespace

void remember_interruption() {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (int const signal : {SIGINT, SIGTERM}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // as a shell's background jobs have it
  }
}

bool is_interrupted() noexcept {
  return received != 0;
}

int interrupted_or(int code) noexcept {
  return received != 0 ? kShellsBase + received : code;
}

}  // namespace weft::tool_output
