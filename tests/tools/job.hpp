#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

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
  /// Whether there were that many within ten seconds.
  [[nodiscard]] bool await_dumps(std::size_t wanted) const {
    for (int attempt = 0; attempt < 1000 && dumps() < wanted; ++attempt) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return dumps() >= wanted;
  }

 private:
  std::string path_;
};

inline ShellResult run_doctor(std::string const& arguments) {
  return run_shell(WEFT_DOCTOR_PROGRAM " " + arguments);
}

inline void expect_says(ShellResult const& result, int code, std::string const& words) {
  EXPECT_EQ(result.code, code) << result.output;
  EXPECT_NE(result.output.find(words), std::string::npos) << result.output << "\ndoes not contain\n" << words;
}

}  // namespace weft::test
