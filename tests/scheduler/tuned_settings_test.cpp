#include "scheduler/tune/tuned_settings.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace weft::test {
namespace {

class TunedSettingsFile : public ::testing::Test {
 protected:
  TunedSettingsFile()
      : folder_(std::filesystem::temp_directory_path() /
                ("weft-tuned-" + std::to_string(::getpid()) + "-" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        path_((folder_ / "autotune.json").string()) {}
  ~TunedSettingsFile() override { std::filesystem::remove_all(folder_); }

  void write(std::string const& text) {
    std::filesystem::create_directories(folder_);
    std::ofstream(path_) << text;
  }
  [[nodiscard]] std::string read() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(TunedSettingsFile, KeepsWhatIsAdded) {
  TunedSettings const settings(path_);
  EXPECT_FALSE(settings.find("a").has_value());
  settings.add("a", {"buckets of 4 MiB", 0.5, "buckets of 25 MiB", 0.75, 9});
  settings.add("b", {"prefetch 2", 0.25, "prefetch 1", 0.3, 3});
  settings.add("b", {"prefetch 3", 0.2, "prefetch 1", 0.3, 4});

  auto const a = TunedSettings(path_).find("a");
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(a->name, "buckets of 4 MiB");
  EXPECT_EQ(a->seconds, 0.5);
  EXPECT_EQ(a->default_name, "buckets of 25 MiB");
  EXPECT_EQ(a->default_seconds, 0.75);
  EXPECT_EQ(a->candidates, 9U);
  EXPECT_EQ(TunedSettings(path_).find("b")->name, "prefetch 3");
  EXPECT_FALSE(TunedSettings(path_).find("c").has_value());
  for (auto const& file : std::filesystem::directory_iterator(folder_)) EXPECT_EQ(file.path(), path_);
}

TEST_F(TunedSettingsFile, WarnsOnceOfWhatIsNoneAndLeavesItAlone) {
  for (std::string const& text :
       {std::string("{\"format\": \"weft autotune 1\", \"trainings\": {"), std::string("not json"), std::string(),
        std::string("[1, 2]"), std::string("{\"format\": \"weft tuning 1\", \"machines\": {}}"),
        std::string("{\"format\": \"weft autotune 2\", \"trainings\": {}}"),
        std::string("{\"format\": \"weft autotune 1\", \"trainings\": []}")}) {
    write(text);
    ::testing::internal::CaptureStderr();
    TunedSettings const settings(path_);
    EXPECT_FALSE(settings.find("a").has_value()) << text;
    settings.add("a", {"x", 1, "y", 1, 1});
    std::string const said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(read(), text);
    EXPECT_LE(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_TRUE(said.empty() || said.find("WEFT_AUTOTUNE_CACHE") != std::string::npos) << said;
  }
}

TEST_F(TunedSettingsFile, RefusesImpossibleEntries) {
  std::string const head = "{\"format\": \"weft autotune 1\", \"trainings\": {\"a\": ";
  for (char const* entry :
       {"null", "3", "{}",
        "{\"setting\": 3, \"seconds\": 1, \"default\": \"y\", \"default_seconds\": 1, \"candidates\": 2}",
        "{\"setting\": \"x\", \"seconds\": -1, \"default\": \"y\", \"default_seconds\": 1, \"candidates\": 2}",
        "{\"setting\": \"x\", \"seconds\": 1e999, \"default\": \"y\", \"default_seconds\": 1, \"candidates\": 2}",
        "{\"setting\": \"x\", \"seconds\": 1, \"default\": \"y\", \"default_seconds\": 0, \"candidates\": 2}",
        "{\"setting\": \"x\", \"seconds\": 1, \"default_seconds\": 1, \"candidates\": 2}"}) {
    write(head + entry + "}}");
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(TunedSettings(path_).find("a").has_value()) << entry;
    static_cast<void>(::testing::internal::GetCapturedStderr());
  }
  write(head + "{\"setting\": \"x\", \"seconds\": 1, \"default\": \"y\", \"default_seconds\": 1, \"candidates\": 2}}}");
  EXPECT_TRUE(TunedSettings(path_).find("a").has_value());
  TunedSettings(path_).add("b", {"x", 1, "y", 1, 1});
  EXPECT_TRUE(TunedSettings(path_).find("a").has_value());
}

}  // namespace
}  // namespace weft::test
