#pragma once

#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace weft::test {

struct ShellResult {
  int code = -1;       ///< 128 if a signal ended it
  std::string output;  ///< stdout and stderr
  std::chrono::duration<double> elapsed{};
};

/// Runs a shell command; root may use mpirun in it. A command that may hang should begin with "timeout".
[[nodiscard]] inline ShellResult run_shell(std::string const& command) {
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  auto const start = std::chrono::steady_clock::now();
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {};
  ShellResult result;
  std::array<char, 4096> block{};
  while (std::size_t const got = fread(block.data(), 1, block.size(), pipe)) result.output.append(block.data(), got);
  int const status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  result.elapsed = std::chrono::steady_clock::now() - start;
  return result;
}

}  // namespace weft::test
