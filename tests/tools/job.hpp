#pragma once

#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "harness/shell.hpp"
#include "weft/config.hpp"

namespace weft::test {

/// A fresh folder for one job's dumps, removed at the end.
class DumpFolder {
 public:
  DumpFolder() {
    auto name = (std::filesystem::temp_directory_path() / "weft-doctor-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~DumpFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  DumpFolder(DumpFolder const&) = delete;
  DumpFolder& operator=(DumpFolder const&) = delete;

  [[nodiscard]] std::string path() const { return path_; }
  [[nodiscard]] Config config() const {
    Config config;
    config.flight_directory = path_;
    return config;
  }
  [[nodiscard]] std::size_t dumps() const {
    std::size_t found = 0;
    for (auto const& entry : std::filesystem::directory_iterator(path_)) {
      found += entry.path().extension() == ".json" ? 1U : 0U;
    }
    return found;
  }
  /// Has dumps written by `signal`, one of each of `ranks`, until weft-doctor says `words` of them: ranks may not have
  /// come yet to where they are to hang. False where it does not in time.
  [[nodiscard]] bool dump_until(std::function<void()> const& signal, std::size_t ranks, std::string const& words) const;

 private:
  std::string path_;
};

inline ShellResult run_doctor(std::string const& arguments) {
  return run_shell(WEFT_DOCTOR_PROGRAM " " + arguments);
}

/// To every rank's process, which then writes its dump.
inline void signal_all(std::vector<std::int64_t> const& pids) {
  for (auto const pid : pids) ::kill(static_cast<pid_t>(pid), SIGUSR2);
}

inline bool DumpFolder::dump_until(std::function<void()> const& signal, std::size_t ranks,
                                   std::string const& words) const {
  auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  while (std::chrono::steady_clock::now() < end) {
    for (auto const& entry : std::filesystem::directory_iterator(path_)) {
      if (entry.path().extension() == ".json") std::filesystem::remove(entry);
    }
    signal();
    // All of them: whoever is late with its own must not write it down once the job goes on.
    while (dumps() < ranks && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (run_doctor("--least-wait 0.2 " + path_).output.find(words) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

inline void expect_says(ShellResult const& result, int code, std::string const& words) {
  EXPECT_EQ(result.code, code) << result.output;
  EXPECT_NE(result.output.find(words), std::string::npos) << result.output << "\ndoes not contain\n" << words;
}

}  // namespace weft::test
