#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

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

struct DoctorResult {
  int code = -1;
  std::string output;  ///< both streams
};

inline DoctorResult run_doctor(std::string const& arguments) {
  FILE* const pipe = ::popen((WEFT_DOCTOR_PROGRAM " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {};
  DoctorResult result;
  std::array<char, 4096> block{};
  while (auto const got = std::fread(block.data(), 1, block.size(), pipe)) result.output.append(block.data(), got);
  int const status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

inline void expect_says(DoctorResult const& result, int code, std::string const& words) {
  EXPECT_EQ(result.code, code) << result.output;
  EXPECT_NE(result.output.find(words), std::string::npos) << result.output << "\ndoes not contain\n" << words;
}

}  // namespace weft::test
