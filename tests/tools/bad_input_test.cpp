#include <sys/stat.h>

#include <fstream>

#include "job.hpp"

namespace weft::test {
namespace {

std::string write(DumpFolder const& folder, std::string const& name, std::string const& text) {
  auto path = folder.path() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

std::string dump_of(std::string const& communicator, int pid) {
  return R"({"weft_flight":1,"communicator":")" + communicator + R"(","rank":0,"size":1,"pid":)" + std::to_string(pid) +
         R"(,"host":"h","reason":"request","written_ns":1,"issued":0,"ended":0,"calls":[]})";
}

/// One line on stderr with these words, exit code 2.
void expect_refused(std::string const& arguments, std::string const& words) {
  auto const result = run_doctor(arguments);
  expect_says(result, 2, words);
  EXPECT_EQ(result.output.rfind("weft-doctor: ", 0), 0U) << result.output;
  EXPECT_EQ(result.output.find('\n'), result.output.size() - 1) << result.output;
}

TEST(BadInput, IsOneLineAndExitCodeTwo) {
  DumpFolder const folder;
  expect_refused(folder.path() + "/absent.json", "cannot read");
  expect_refused(folder.path(), "there is no weft-flight.*.json in");
  ASSERT_EQ(mkfifo((folder.path() + "/weft-flight.pipe.json").c_str(), 0600),
            0);  // nobody writes: not to be waited for
  expect_refused(folder.path(), "there is no weft-flight.*.json in");
  expect_refused(write(folder, "empty.json", ""), "empty.json is empty");
  expect_refused(write(folder, "garbage.json", "\x01\x02 not json"), "garbage.json is no flight recorder's dump");
  expect_refused(write(folder, "other.json", "{\"traceEvents\": []}"), "weft_flight");
  std::string const deep = std::string(300'000, '[') + std::string(300'000, ']');
  expect_refused(write(folder, "deep.json", R"({"weft_flight":)" + deep + "}"), "its \"weft_flight\" is array");
  auto const a = write(folder, "a.json", dump_of("a", 1));
  auto const b = write(folder, "b.json", dump_of("b", 2));
  expect_refused(a + " " + b, "different jobs");
}

TEST(BadInput, WrongUsageIsExitCodeTwo) {
  expect_refused("", "which dumps?");
  expect_says(run_doctor("--what"), 2, "--what");
  EXPECT_EQ(run_doctor("--least-wait soon x").code, 2);
  expect_says(run_doctor("--least-wait nan x"), 2, "no finite number");
  expect_says(run_doctor("--help"), 0, "Exit code 0");
}

TEST(Version, IsSaidOfBothPrograms) {
  expect_says(run_doctor("--version"), 0, "weft-doctor (weft) ");
  expect_says(run_doctor("--topology --version"), 0, "weft-topology (weft) ");
}

}  // namespace
}  // namespace weft::test
