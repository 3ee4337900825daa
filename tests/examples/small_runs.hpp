#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/sanitizers.hpp"
#include "program.hpp"

namespace weft::test {

using Json = nlohmann::json;

/// A model that trains in no time.
inline std::string const kSmall = "--layers 2 --width 32 --heads 2 --seq 16 --batch 8 --lr 0.003 --sample 0 ";

/// Of a run that succeeds: its report.
inline Json report_of(TemporaryFolder const& folder, std::string const& arguments) {
  std::string const path = folder.file("report.json");
  ProgramResult const result = run_train_gpt(kSmall + arguments + " --report-json " + path);
  EXPECT_EQ(result.code, 0) << result.error << result.out;
  return Json::parse(read_file(path));
}

inline std::vector<double> losses_of(TemporaryFolder const& folder, std::string const& arguments) {
  return report_of(folder, arguments)["runs"][0]["losses"];
}

/// The bytes of a checkpoint after a run: weights, moments and all.
inline std::string weights_of(TemporaryFolder const& folder, std::string const& arguments) {
  std::string const path = folder.file("weights");
  ProgramResult const result = run_train_gpt(kSmall + arguments + " --save " + path);
  EXPECT_EQ(result.code, 0) << result.error << result.out;
  std::string const bytes = read_file(path);
  EXPECT_GT(bytes.size(), 100'000U);
  std::filesystem::remove(path);
  return bytes;
}

/// Those to be tried. Programs take long under ThreadSanitizer, and zero1's and hsdp's threads are those of zero2 and
/// zero3.
inline std::vector<char const*> strategies() {
  if (kThreadSanitizer) return {"ddp", "zero2", "zero3"};
  return {"ddp", "zero1", "zero2", "zero3", "hsdp"};
}

}  // namespace weft::test
